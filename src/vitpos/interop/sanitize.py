"""The function `sanitize`, under the name by which modules of this package import it."""

from vitpos.printable import sanitize

__all__ = ["sanitize"]

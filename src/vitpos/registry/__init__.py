"""Names, specs and plug-ins: from a text such as ``"learned + rope(base=10)"`` to the object that it describes."""

from vitpos.registry.option_types import accepts
from vitpos.registry.registry import Registry
from vitpos.registry.specs import Term
from vitpos.registry.suggestions import suggest

__all__ = ["Registry", "Term", "accepts", "suggest"]

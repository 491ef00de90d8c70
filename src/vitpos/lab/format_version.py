"""The version of the layout of run folders; folders of another version are refused."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vitpos.errors import InputError
from vitpos.printable import sanitize

FORMAT_VERSION = 4  # of the folder layout; incremented when a file changes its name or its meaning


def check_version(stored: Mapping[str, Any], path: Path) -> None:
    """Raises an InputError if a folder or file was written with another version of the file format.

    Args:
        stored: content of its JSON, with the key ``format_version``.
        path: the folder or file, for the message.
    """
    found = stored.get("format_version", 1)
    if not isinstance(found, int):
        raise InputError(f"{path} has format version {sanitize(found)}, which is not a number; restore it")
    if found != FORMAT_VERSION:
        remedy = "upgrade vitpos" if found > FORMAT_VERSION else "run the experiment again into a new folder"
        raise InputError(f"{path} has format version {found}, and this vitpos reads version {FORMAT_VERSION}; {remedy}")

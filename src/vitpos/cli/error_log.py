"""Turns an unexpected exception into one line, and stores its traceback in a log file."""

from __future__ import annotations

import os
import sys
import tempfile
import traceback

from vitpos.printable import sanitize


def log_unexpected(error: BaseException) -> str:
    """Writes the traceback of an exception to a file in the folder for temporary files; returns a message of one line."""
    summary = f"unexpected {type(error).__name__}: {sanitize(error, limit=160)}"
    if isinstance(error, MemoryError) or "can't allocate memory" in str(error):
        summary = "not enough memory"
    try:
        descriptor, path = tempfile.mkstemp(prefix="vitpos-error-", suffix=".log", text=True)
        with open(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:  # noqa: PTH123
            file.write(f"{sys.argv!r} in {os.getcwd()}\n")  # noqa: PTH109
            file.write("".join(traceback.format_exception(error)))
    except (OSError, MemoryError) as full:
        return f"{summary} (no traceback: {sanitize(full)})"
    return f"{summary}; the traceback is in {path}"

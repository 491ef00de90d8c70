"""Files that are there as a whole or not at all, and folders that one process at a time works in."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def write_whole(path: Path, content: bytes) -> None:
    """Puts a file in place whole: written beside it, flushed to the disk, then moved."""
    part = path.with_name(f"{path.name}.part")
    try:
        with part.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise


@contextmanager
def locked(folder: Path, *, wait: bool) -> Iterator[None]:
    """Keeps other processes out of a folder; the lock goes with the process, however it ends.

    Where another process has it, waits for it, or raises BlockingIOError at once.
    """
    try:
        import fcntl
    except ImportError:  # no such lock on Windows
        yield
        return
    with (folder / ".lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise
        except OSError:  # nor on some file systems
            pass
        yield

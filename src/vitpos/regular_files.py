"""Opens regular files only: a FIFO or a device, which could block or never end, is refused before it is opened."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

MAX_TEXT_BYTES = 1 << 26  # of a JSON, CSV or TOML file; larger ones are not read
KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
    stat.S_IFDIR: "a folder",
}
NONBLOCK = getattr(os, "O_NONBLOCK", 0)  # Windows has none


def require_regular(path: str | Path) -> os.stat_result:
    """Returns the status of a regular file, following links; raises an OSError for a FIFO, a device or a folder."""
    return _checked(os.stat(path), path)  # noqa: PTH116


def open_regular(path: str | Path) -> BinaryIO:
    """Opens a regular file for reading, following links; raises an OSError for a FIFO, a device or a folder."""
    require_regular(path)
    file = open(os.open(path, os.O_RDONLY | NONBLOCK | getattr(os, "O_BINARY", 0)), "rb")  # noqa: SIM115, PTH123
    try:
        _checked(os.fstat(file.fileno()), path)  # it may have been replaced since
    except OSError:
        file.close()
        raise
    return file


def read_regular(path: str | Path, *, max_bytes: int = MAX_TEXT_BYTES) -> bytes:
    """Returns the content of a regular file; raises an OSError if it is another kind of file or has more bytes."""
    with open_regular(path) as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise OSError(errno.EFBIG, f"it has more than {max_bytes:,} bytes", str(path))
    return content


def _checked(status: os.stat_result, path: str | Path) -> os.stat_result:
    if not stat.S_ISREG(status.st_mode):
        kind = KINDS.get(stat.S_IFMT(status.st_mode), "not a regular file")
        raise OSError(errno.EINVAL, f"it is {kind}, not a regular file", str(path))
    return status

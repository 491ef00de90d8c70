"""Whether a run folder may name what is read: one that this user's ``vitpos run`` wrote may, one from elsewhere may not.

``vitpos run`` signs the folders that it writes with a key of the user. What an unsigned folder, or a weights file, names is
limited to data sets that come with vitpos or are in its cache, to models that fit the stored tensors, and to no plug-ins.
The option ``--trust`` of commands, and ``trust=True`` in Python, lift these limits.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from vitpos.data import DATASETS, DOWNLOADS
from vitpos.errors import InputError
from vitpos.files import write_text
from vitpos.lab.cells import Cell
from vitpos.printable import sanitize
from vitpos.registry import plugins
from vitpos.regular_files import read_regular

SIGNATURE = ".signature"
SIGNED = ("experiment.json", "plugins.json")
MAX_NUMBERS = 1 << 28  # product of the whole numbers among the options of a data set
MAX_PIXELS, MAX_RESIZED = 1 << 22, 1 << 18  # of an image; the view resize keeps all images of both splits in memory
REMEDY = "if you trust it, use --trust, or trust=True in Python"
ALL = "VITPOS_TRUST"  # environment variable that --trust sets, which worker processes inherit
_trusting: ContextVar[bool] = ContextVar("trusting", default=False)


def trust_everything() -> None:
    """Lifts the limits on what run folders and weights files may name, in this process and those that it starts."""
    os.environ[ALL] = "1"


@contextmanager
def trusting(trust: bool) -> Iterator[None]:
    """Context manager in which, if ``trust`` is set, the limits on what files may name are lifted in this thread."""
    token = _trusting.set(trust or _trusting.get())
    try:
        yield
    finally:
        _trusting.reset(token)


def trusts_everything() -> bool:
    """Whether the limits are lifted, by ``--trust`` or by `trusting`."""
    return os.environ.get(ALL) == "1" or _trusting.get()


def sign(folder: Path) -> None:
    """Writes ``.signature`` into a run folder, which shows later commands of this user that vitpos wrote the folder.

    Without a folder for the user's key nothing is written; later commands then need ``--trust`` for some data.
    """
    with suppress(OSError):
        write_text(folder / SIGNATURE, _signature(folder, _key()) + "\n")


def is_trusted(path: Path) -> bool:
    """Whether the limits are lifted, or this user's vitpos wrote the run folder at ``path``, or the one that contains it.

    ``path`` is a run folder, the folder of a cell, or a file in one.
    """
    if trusts_everything():
        return True
    folder = path.resolve()
    folder = next((above.parent for above in list(folder.parents)[:2] if above.name == "cells"), folder)
    try:
        stored = read_regular(folder / SIGNATURE, max_bytes=1000).decode("ascii", "replace").strip()
        return hmac.compare_digest(stored.encode(), _signature(folder, _key()).encode())
    except OSError:
        return False


def _signature(folder: Path, key: bytes) -> str:
    digest = hmac.new(key, digestmod=hashlib.sha256)
    for name in SIGNED:
        content = read_regular(folder / name) if (folder / name).exists() else b""
        digest.update(hashlib.sha256(content).digest())
    return digest.hexdigest()


def _key() -> bytes:
    """Returns the user's secret key, 32 bytes, which is created at first use."""
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    path = state / "vitpos" / "key"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):  # another process was faster
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with open(descriptor, "wb") as file:  # noqa: PTH123
                file.write(secrets.token_bytes(32))
    return read_regular(path, max_bytes=1000)


@contextmanager
def limited_names(source: Path, *, trusted: bool) -> Iterator[None]:
    """Context manager in which specs of ``source`` cannot import code, unless it is trusted or ``--plugin`` gave it."""
    if trusted:
        yield
        return
    with plugins.refusing_imports(f"{source} is not from a run of yours", REMEDY):
        yield


def check_data(cell: Cell, source: Path) -> None:
    """Raises an InputError if the data of an untrusted cell would read files, start a download or be large.

    Args:
        cell: settings of a training, from an untrusted file.
        source: that file or folder, for the message.
    """
    what = f"{source} names the data {sanitize(cell.data)}, which"
    with limited_names(source, trusted=False):
        terms = DATASETS.parse(cell.data)
    for term in terms:
        if "path" in term.options:
            raise InputError(f"{what} would read files of this machine; {REMEDY}, or give other data")
        if math.prod(max(1, abs(number)) for number in _integers(list(term.options.values()))) > MAX_NUMBERS:
            raise InputError(f"{what} is too large to load for an untrusted file; {REMEDY}, or give other data")
        size = _integers(term.options.get("size", 1)) or [1]
        if math.prod((size * 2)[:2]) > (MAX_RESIZED if term.name == "resize" else MAX_PIXELS):
            raise InputError(
                f"{what} has images that are too large for an untrusted file; {REMEDY}, or give other data"
            )
        if term.name in DOWNLOADS and not DOWNLOADS.load(term.name).present:
            raise InputError(
                f"{what} is not downloaded for an untrusted file; "
                f"run 'vitpos data get {term.name}' first, or give other data"
            )


def _integers(value: Any) -> list[int]:
    if isinstance(value, list | tuple):
        return [number for one in value for number in _integers(one)]
    return [value] if isinstance(value, int) else []

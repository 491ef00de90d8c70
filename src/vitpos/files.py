"""Atomic writing and reading of files, folder locks, and error messages for failures of the file system."""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from vitpos.checksums import has_wrong_checksum, with_checksum
from vitpos.errors import InputError, RunError
from vitpos.printable import sanitize
from vitpos.regular_files import read_regular, require_regular

if TYPE_CHECKING:
    from torch import Tensor

FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what a spreadsheet takes for the start of a formula


def atomic_write(path: Path, content: bytes) -> None:
    """Writes a file under a temporary name, flushes it to disk and renames it, so that it is never partly written."""
    part = path.with_name(f"{path.name}.part")
    try:
        part.unlink(missing_ok=True)  # a link or FIFO there is not followed
        with part.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise


@contextmanager
def locked(folder: Path, *, wait: bool) -> Iterator[None]:
    """Locks a folder during a ``with`` block; the lock is released when the process ends, even by a crash.

    If another process holds the lock: waits for it if ``wait`` is true, otherwise raises BlockingIOError. Does nothing on
    systems without ``flock``, such as Windows.
    """
    try:
        import fcntl
    except ImportError:  # Windows has no flock
        yield
        return
    with _open_lock(folder / ".lock") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise
        except OSError:  # nor have some file systems
            pass
        yield


def _open_lock(path: Path) -> IO[bytes]:
    """Opens a lock file, which is created if needed; raises an OSError if it is a folder, a FIFO, a device or a link."""
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)
    file = open(os.open(path, flags, 0o666), "rb+", buffering=0)  # noqa: SIM115, PTH123
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return file


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Locks a folder during a ``with`` block; raises an InputError if another process holds the lock."""
    with ExitStack() as stack:
        try:
            stack.enter_context(locked(folder, wait=False))
        except BlockingIOError:
            raise InputError(f"another process is working in {folder}; wait for it or use another folder") from None
        except OSError as error:
            lock = folder / ".lock"
            raise InputError(f"{lock} cannot be locked ({os_reason(error)}); remove it or use another folder") from None
        yield


@contextmanager
def explain_os_errors(path: Path) -> Iterator[None]:
    """Converts an OSError in a ``with`` block into a RunError whose message gives ``path``, the cause and the remedy."""
    try:
        yield
    except OSError as error:
        raise RunError(
            f"cannot write {path} ({os_reason(error)}); results so far are kept: fix the cause and run the command again"
        ) from error


def os_reason(error: Exception) -> str:
    """Returns the operating system's message of an error, such as ``No space left on device``, or the error's text."""
    return getattr(error, "strerror", None) or str(error)


def require_folder(out: Path) -> None:
    """Raises an InputError if ``out``, the path of an output folder, is a file."""
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file; give a folder")


def write_bytes(path: Path, content: bytes) -> Path:
    """Writes a file atomically, creates its folder if needed, and returns ``path``."""
    with explain_os_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(path, content)
    return path


def write_text(path: Path, text: str) -> Path:
    """Writes a text file (UTF-8) atomically, creates its folder if needed, and returns ``path``."""
    return write_bytes(path, text.encode())


def write_json(path: Path, values: Any) -> Path:
    """Writes ``values`` as a JSON file atomically, creates its folder if needed, and returns ``path``."""
    return write_text(path, json.dumps(values, indent=1) + "\n")


@contextmanager
def explain_damage(path: Path, remedy: str = "delete it and run again") -> Iterator[None]:
    """Converts an error while a stored file is read, or its values are converted, into a RunError of one line.

    Args:
        path: the file, for the message.
        remedy: what to do, the end of the message.
    """
    try:
        yield
    except (InputError, RunError):
        raise
    except (OSError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
        cause = os_reason(error) if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
        raise RunError(f"{path} is damaged ({sanitize(cause, limit=120)}); {remedy}") from None


def read_json(path: Path, kind: type = dict) -> Any:
    """Returns the content of a JSON file that vitpos wrote; raises a RunError if it is missing or damaged.

    Args:
        kind: type that the content must have, such as ``dict``.
    """
    with explain_damage(path):
        content = json.loads(read_regular(path))
        if not isinstance(content, kind):
            raise TypeError(f"it holds no {kind.__name__}")
        return content


def read_csv(path: Path) -> list[dict[str, str]]:
    """Returns the rows of a CSV file that vitpos wrote, header → text; raises a RunError if it is missing or damaged."""
    with explain_damage(path):
        rows = csv.DictReader(io.StringIO(read_regular(path).decode(), newline=""), strict=True)
        found = list(rows)
        if any(None in row or None in row.values() for row in found):
            raise ValueError("a row has more or fewer values than the header")
        return found


def write_csv(path: Path, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> Path:
    """Writes a header and rows as a CSV file atomically, creates its folder if needed, and returns ``path``.

    A text that a spreadsheet would run as a formula, such as ``=1+1``, gets an apostrophe in front.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(_no_formula, header))
    writer.writerows([_no_formula(value) for value in row] for row in rows)
    return write_text(path, text.getvalue())


def _no_formula(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: dict[str, str]) -> Path:
    """Writes tensors by name and string metadata, with a checksum, to a safetensors file atomically; returns ``path``."""
    from safetensors.torch import save

    content = save({key: t.detach().cpu().contiguous() for key, t in tensors.items()}, metadata)
    return write_bytes(path, with_checksum(content))


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Returns (tensors by name, metadata) of a safetensors file that vitpos wrote; raises a RunError if it is damaged."""
    with _opened(path, verified=True) as file:
        return {key: file.get_tensor(key) for key in file.keys()}, file.metadata() or {}  # noqa: SIM118


def read_metadata(path: Path) -> dict[str, str]:
    """Returns the metadata (strings by name) of a safetensors file without reading its tensors."""
    with _opened(path) as file:
        return file.metadata() or {}


@contextmanager
def _opened(path: Path, *, verified: bool = False) -> Iterator[Any]:
    """Context manager that opens a safetensors file of vitpos; raises a RunError if it is damaged.

    Args:
        verified: whether to compare the whole file with its checksum first; older files have none.
    """
    from safetensors import SafetensorError, safe_open

    try:
        require_regular(path)
        if verified and has_wrong_checksum(path):
            raise RunError(
                f"{path} has changed since it was written (wrong checksum); restore it, or run the cell again"
            )
        with safe_open(path, "pt") as file:
            yield file
    except (SafetensorError, OSError) as error:
        cause = os_reason(error) if isinstance(error, OSError) else error
        raise RunError(f"{path} is damaged ({sanitize(cause, limit=120)}); delete it and run the cell again") from None

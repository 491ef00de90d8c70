"""Atomic writing and reading of files, folder locks, and error messages for failures of the file system."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitpos.errors import InputError, RunError

if TYPE_CHECKING:
    from torch import Tensor


def atomic_write(path: Path, content: bytes) -> None:
    """Writes a file under a temporary name, flushes it to disk and renames it, so that it is never partly written."""
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
    """Locks a folder during a ``with`` block; the lock is released when the process ends, even by a crash.

    If another process holds the lock: waits for it if ``wait`` is true, otherwise raises BlockingIOError. Does nothing on
    systems without ``flock``, such as Windows.
    """
    try:
        import fcntl
    except ImportError:  # Windows has no flock
        yield
        return
    with (folder / ".lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise
        except OSError:  # nor have some file systems
            pass
        yield


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Locks a folder during a ``with`` block; raises an InputError if another process holds the lock."""
    with ExitStack() as stack:
        try:
            stack.enter_context(locked(folder, wait=False))
        except BlockingIOError:
            raise InputError(f"another process is working in {folder}; wait for it or use another folder") from None
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


def os_reason(error: OSError) -> str:
    """Returns the operating system's message of an error, such as ``No space left on device``."""
    return error.strerror or str(error)


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


def read_json(path: Path) -> Any:
    """Returns the content of a JSON file that vitpos wrote; raises a RunError if it is missing or damaged."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunError(f"{path} is damaged ({error}); delete it and run again") from None


def write_csv(path: Path, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> Path:
    """Writes a header and rows as a CSV file atomically, creates its folder if needed, and returns ``path``."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return write_text(path, text.getvalue())


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: dict[str, str]) -> Path:
    """Writes tensors by name and string metadata to a safetensors file atomically; returns ``path``."""
    from safetensors.torch import save

    return write_bytes(path, save({key: t.detach().cpu().contiguous() for key, t in tensors.items()}, metadata))


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Returns (tensors by name, metadata) of a safetensors file that vitpos wrote; raises a RunError if it is damaged."""
    with _opened(path) as file:
        return {key: file.get_tensor(key) for key in file.keys()}, file.metadata() or {}  # noqa: SIM118


def read_metadata(path: Path) -> dict[str, str]:
    """Returns the metadata (strings by name) of a safetensors file without reading its tensors."""
    with _opened(path) as file:
        return file.metadata() or {}


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as file:
            yield file
    except (SafetensorError, OSError) as error:
        raise RunError(f"{path} is damaged ({error}); delete it and run the cell again") from None

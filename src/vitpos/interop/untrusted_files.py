"""Reads tensors from one untrusted file: no code in it is run, and sizes it claims are checked before allocation.

The format is recognized by the first bytes, not by the file name. Every problem raises an `InputError` of one line.
"""

from __future__ import annotations

import argparse
import json
import re
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from vitpos.checksums import has_wrong_checksum
from vitpos.errors import InputError
from vitpos.interop.npz_arrays import read_array
from vitpos.interop.pickle_scan import scan_pickle
from vitpos.interop.training_arguments import training_arguments
from vitpos.printable import sanitize
from vitpos.regular_files import open_regular

MAX_COMPRESSION = 64  # unpacked size over file size; weights hardly compress
ALWAYS_ALLOWED = 1 << 26  # unpacked bytes that are accepted at any ratio
MAX_UNPACKED = 1 << 30  # bytes of an npz that is compressed
MAX_HEADER = 1 << 24  # bytes of the header of a safetensors file; checkpoints of a thousand layers have less than 1 MB
MAX_TENSORS = 20_000
FIRST_OBJECT, NUM_PICKLES = 3, 5  # pickles of a legacy file: magic number, version, system info, object, storages
MAX_MAGNITUDE = 1e6  # far above any trained position parameter
MAX_DEPTH = 8  # levels of dictionaries in a file of torch
NO_WEIGHTS = ("optim", "lr_sched", "scaler", "loss_scaler")  # keys of a checkpoint that are not read
ZIP, HDF5, LFS, HTML = b"PK\x03\x04", b"\x89HDF", b"version https://git-lfs", (b"<!doc", b"<html")


def read_file(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Reads a safetensors, torch or npz file; returns tensor name → tensor, and its metadata or training arguments."""
    with errors_in_one_line(path):
        with open_regular(path) as stream:
            start = stream.read(64)
        if not start:
            raise InputError(f"{path} is empty; download it again")
        if start.startswith(ZIP):
            found = _read_zip(path)
        elif _is_safetensors(start):
            found = _read_safetensors(path)
        elif start[:1] == b"\x80":
            found = _read_torch_legacy(path)
        else:
            raise InputError(f"{path} {_describe_other(start)}")
        _check_count(path, len(found[0]))
        return found


def _check_count(path: Path, tensors: int) -> None:
    if tensors > MAX_TENSORS:
        raise InputError(f"{path} has more than {MAX_TENSORS:,} tensors, unlike any ViT; give a ViT checkpoint")


def metadata_or_empty(path: str | Path) -> dict[str, str]:
    """Returns the metadata of a safetensors file, without reading its tensors; {} for any other or damaged file."""
    path = Path(path)
    with suppress(InputError), errors_in_one_line(path):
        if not path.is_file():
            return {}
        with open_regular(path) as stream:
            start = stream.read(64)
        if _is_safetensors(start):
            _check_header(path)
            with safe_open(path, framework="pt") as file:
                return dict(file.metadata() or {})
    return {}


def _check_header(path: Path) -> None:
    """Raises an InputError if the header of a safetensors file is too long to be read, or describes too many tensors."""
    with open_regular(path) as stream:
        size = int.from_bytes(stream.read(8), "little")
        if MAX_HEADER < size < path.stat().st_size:  # a size beyond the end is damage, which the next line finds
            raise InputError(f"{path} has a header of {size:,} bytes, unlike any checkpoint; download it again")
        _check_count(path, len(json.loads(stream.read(size))))


def _is_safetensors(start: bytes) -> bool:
    """Returns whether the first bytes of a file are a length and the start of a JSON object, as in safetensors files."""
    return start[8:9] == b"{" and int.from_bytes(start[:8], "little") < 1 << 40


@contextmanager
def errors_in_one_line(path: Path) -> Iterator[None]:
    """Context manager that converts any exception into an `InputError` of one line with ``path``; suppresses warnings."""
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    except InputError:
        raise
    except MemoryError:
        raise InputError(f"{path} needs more memory than is available; check that it is a checkpoint") from None
    except Exception as error:  # on damaged bytes readers raise any type
        raise InputError(f"{path} {_reason(error)}") from None


def _describe_other(start: bytes) -> str:
    """Returns what a file of an unsupported format is, by its first bytes, and the remedy, for an error message."""
    if start.startswith(LFS):
        return "is a Git LFS pointer, not the weights; run 'git lfs pull' in its repository"
    if start[:5].lower() in HTML:
        return "is a web page, not the weights; download the file itself"
    if start.startswith(HDF5):
        return "is an HDF5 file; save its weights as .safetensors or .npz"
    return "does not start like a .safetensors, .pth or .npz file; give a ViT checkpoint in one of these formats"


def _reason(error: Exception) -> str:
    """Returns the cause of a reader's exception and the remedy, for an error message."""
    text = " ".join(str(error).split())
    if "Weights only" in text and (code := re.search(r"(?:GLOBAL|function|class) <?([\w.]+)", text)):
        return (
            f"would run {sanitize(code[1])} of Python when loaded, which was refused; "
            "save only its tensors, by torch.save(model.state_dict(), …) or as .safetensors"
        )
    if "Weights only" in text and "tar format" not in text:
        return "is damaged, or a pickle not written by torch, which is not loaded; save its tensors as .safetensors"
    if "tar format" in text:
        return "is in torch's tar format, which cannot be loaded without running it; save it again as .safetensors"
    if isinstance(error, PermissionError):
        return "is not readable by you; change its permissions or give a copy"
    detail = sanitize(re.split(r"(?<=\w)[.;] ", text)[0], limit=120)
    return f"is damaged or truncated ({type(error).__name__}{': ' + detail if detail else ''}); download it again"


def _read_safetensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    _check_header(path)
    with safe_open(path, framework="pt") as file:  # refuses a truncated file
        if has_wrong_checksum(path):
            remedy = "copy, download or convert it again"
            raise InputError(f"{path} has changed since it was written (wrong checksum); {remedy}")
        return {name: file.get_tensor(name) for name in file.keys()}, dict(file.metadata() or {})  # noqa: SIM118


def _read_zip(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Reads a zip: a file of torch.save if it contains ``data.pkl``, otherwise numpy's npz.

    Returns tensor name → tensor, and the training arguments stored beside them.
    """
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        _check_count(path, len(members) // 2)  # a file of torch has a few besides its tensors
        if any(member.filename.endswith("/constants.pkl") for member in members):
            raise InputError(
                f"{path} is a TorchScript program, which is not run; save its state_dict() as .safetensors"
            )
        if pickles := [member for member in members if member.filename.endswith("/data.pkl")]:
            if any(member.compress_type != zipfile.ZIP_STORED for member in members):
                raise InputError(f"{path} is compressed, which torch.save never does; save it again with torch.save")
            for member in pickles:
                with archive.open(member) as stream:
                    scan_pickle(stream, path.stat().st_size, str(path))
            return _read_torch(path, mmap=True)
        arrays = [member for member in members if member.filename.endswith(".npy")]
        if not arrays:
            raise InputError(f"{path} is a zip without tensors; give a .pth of torch.save or a .npz of numpy.savez")
        size = path.stat().st_size
        claimed = sum(member.file_size for member in arrays)
        if claimed > max(size, min(MAX_UNPACKED, MAX_COMPRESSION * size), ALWAYS_ALLOWED):
            raise InputError(
                f"{path} would unpack from {size:,} to {claimed:,} bytes, unlike any checkpoint; give another file"
            )
        found = {}
        for member in arrays:
            with archive.open(member) as stream:
                array = read_array(stream, member.file_size, f"{path}: {sanitize(member.filename)}")
            if array is not None:
                found[member.filename.removesuffix(".npy")] = array
        return found, {}


def _read_torch_legacy(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Reads a file of torch before 1.6; returns tensor name → tensor, and the training arguments stored beside them.

    Loading allocates memory by numbers in the pickle. If one exceeds the file size, the sizes are first checked by
    loading fake tensors, which allocate nothing.
    """
    size = path.stat().st_size
    if _largest_integer(path) > size:
        from torch._subclasses import FakeTensorMode

        with FakeTensorMode():
            _check_sizes(path, _flatten(_load(path)))
    return _read_torch(path, mmap=False)


def _largest_integer(path: Path) -> int:
    """Returns the largest integer in the object and storage pickles of a legacy torch file, without running them."""
    size = path.stat().st_size
    with open_regular(path) as stream:
        found = [scan_pickle(stream, size, str(path)) for _ in range(NUM_PICKLES)]
    return max(found[FIRST_OBJECT:])


def _read_torch(path: Path, *, mmap: bool) -> tuple[dict[str, Tensor], dict[str, Any]]:
    loaded = _load(path, mmap=mmap)
    tensors = _flatten(loaded)
    _check_sizes(path, tensors)
    return {name: tensor for name, tensor in tensors.items() if not tensor.is_meta}, training_arguments(loaded)


def _load(path: Path, *, mmap: bool = False) -> Any:
    """Returns the object that ``torch.load`` reads with ``weights_only=True``; ``argparse.Namespace`` is allowed too."""
    with torch.serialization.safe_globals([argparse.Namespace]):
        if mmap and path.suffix != ".safetensors":  # torch.load decides by that suffix
            return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        with open_regular(path) as stream:
            return torch.load(stream, map_location="cpu", weights_only=True)


def _check_sizes(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Raises if a tensor claims more bytes than the file has, through expanded strides or a false header."""
    size = path.stat().st_size
    for name, tensor in tensors.items():
        claimed = tensor.numel() * tensor.element_size()
        if max(claimed, tensor.untyped_storage().nbytes()) > size:
            raise InputError(
                f"{path}: {sanitize(name)} claims {claimed:,} bytes, more than the whole file; download it again"
            )


def _flatten(value: Any) -> dict[str, Tensor]:
    """Returns dotted name → tensor for the tensors in nested dictionaries, without optimizer state.

    A dictionary that occurs several times is read once. Keys that are neither text nor integers are ignored.

    Args:
        value: nested dictionaries as ``torch.load`` returns them; anything else in them than tensors is ignored.
    """
    found: dict[str, Tensor] = {}
    seen: set[int] = set()
    waiting = [("", value, 0)]
    while waiting:
        name, one, depth = waiting.pop()
        if isinstance(one, Tensor):
            if name and one.layout == torch.strided and not one.is_quantized:
                found[name] = one.detach()
        elif isinstance(one, Mapping) and depth < MAX_DEPTH and id(one) not in seen:
            seen.add(id(one))
            keys = [key for key in one if isinstance(key, str | int) and not str(key).startswith(NO_WEIGHTS)]
            waiting += [(f"{name}.{key}" if name else str(key), one[key], depth + 1) for key in reversed(keys)]
    return found


def to_float32(tensor: Tensor, name: str) -> Tensor:
    """Returns a float32 copy of a tensor; raises if its values are not floating point, finite and at most ±10⁶.

    Args:
        name: name of the tensor in error messages.
    """
    if not tensor.is_floating_point():
        raise InputError(
            f"{name} contains {str(tensor.dtype).removeprefix('torch.')} values; give weights in floating point"
        )
    copy = tensor.to(torch.float32, copy=True)
    bad = int((~copy.isfinite()).sum())
    if bad:
        raise InputError(
            f"{name} has {bad:,} of {copy.numel():,} values that are NaN or infinite; did training diverge?"
        )
    largest = float(copy.abs().max()) if copy.numel() else 0.0
    if largest > MAX_MAGNITUDE:
        raise InputError(f"{name} has values up to {largest:.2g}, which no training gives; is the file damaged?")
    return copy

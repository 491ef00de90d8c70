"""Tensors out of one file of a stranger: nothing in it is run, and nothing is allocated on its word alone.

What a file is, its first bytes say, never its name. Whatever is wrong with it ends in one line of `UserError`.
"""

from __future__ import annotations

import argparse
import math
import pickletools
import re
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from numpy.lib import format as npy
from safetensors import safe_open
from torch import Tensor

from vitpos.errors import UserError
from vitpos.interop.sanitize import shown

UNPACKED = 64  # times the size of a compressed file that its arrays may claim; weights hardly compress
SMALL = 1 << 26  # bytes that may be claimed in any case
BEFORE, AFTER = 3, 5  # the pickles of a legacy file: magic number, version, machine; the object, its storages
ZIP, HDF5, LFS, WEB = b"PK\x03\x04", b"\x89HDF", b"version https://git-lfs", (b"<!doc", b"<html")


def read_file(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors of a safetensors, torch or npz file by name, and what else it says: metadata, arguments."""
    with one_line(path):
        with path.open("rb") as stream:
            start = stream.read(64)
        if not start:
            raise UserError(f"{path} is empty; fetch it again")
        if start.startswith(ZIP):
            return _read_zip(path)
        if _is_safetensors(start):
            return _read_safetensors(path)
        if start[:1] == b"\x80":
            return _read_torch_legacy(path)
        raise UserError(f"{path} {_something_else(start)}")


def read_metadata(path: Path) -> dict[str, str]:
    """The metadata of a safetensors file, whose tensors are not read; {} where it is none, or damaged."""
    with suppress(UserError), one_line(path):
        with path.open("rb") as stream:
            start = stream.read(64)
        if _is_safetensors(start):
            with safe_open(path, framework="pt") as file:
                return dict(file.metadata() or {})
    return {}


def _is_safetensors(start: bytes) -> bool:
    """A JSON object after its length."""
    return start[8:9] == b"{" and int.from_bytes(start[:8], "little") < 1 << 40


@contextmanager
def one_line(path: Path) -> Iterator[None]:
    """Turns whatever a damaged or hostile file makes a reader raise into one line, and keeps the readers' warnings back."""
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    except UserError:
        raise
    except MemoryError:
        raise UserError(f"{path} asks for more memory than there is; is it what you meant to give?") from None
    except Exception as error:  # readers raise anything at all on mutated bytes
        raise UserError(f"{path} {_reason(error)}") from None


def _something_else(start: bytes) -> str:
    """What a file is that is none of ours."""
    if start.startswith(LFS):
        return "is only a pointer of Git LFS, not the weights; run 'git lfs pull' where it came from"
    if start[:5].lower() in WEB:
        return "is a web page, not the weights; download the file itself"
    if start.startswith(HDF5):
        return "is an HDF5 file; save its weights as .safetensors or .npz"
    return "is no .safetensors, .pth or .npz file by its first bytes; give a ViT checkpoint in one of these formats"


def _reason(error: Exception) -> str:
    """What a reader's exception says, for a person."""
    text = " ".join(str(error).split())
    if "Weights only" in text and (code := re.search(r"(?:GLOBAL|function|class) <?([\w.]+)", text)):
        return (
            f"wants {shown(code[1])} of Python to be run while it is read, which was not done; "
            "save its tensors alone, by torch.save(model.state_dict(), …) or as .safetensors"
        )
    if "Weights only" in text and "tar format" not in text:
        return "is damaged, or a pickle that torch did not write and that is not run; save its tensors as .safetensors"
    if "tar format" in text:
        return "is in torch's oldest format, which cannot be read without running it; save it anew as .safetensors"
    if isinstance(error, PermissionError):
        return "may not be read by you; change its permissions or give a copy"
    said = shown(re.split(r"(?<=\w)[.;] ", text)[0], most=120)
    return f"is damaged or truncated ({type(error).__name__}{': ' + said if said else ''}); fetch it again"


def _read_safetensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    with safe_open(path, framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, dict(file.metadata() or {})  # noqa: SIM118


def _read_zip(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """A zip is torch's, when it has a pickle named ``data.pkl`` and all of it is stored as it is, or numpy's."""
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        if any(member.filename.endswith("/constants.pkl") for member in members):
            raise UserError(f"{path} is a TorchScript program, which is not run; save its state_dict() as .safetensors")
        if any(member.filename.endswith("/data.pkl") for member in members):
            if any(member.compress_type != zipfile.ZIP_STORED for member in members):
                raise UserError(f"{path} is compressed, as torch never saves; save it anew with torch.save")
            return _read_torch(path, mmap=True)
        arrays = [member for member in members if member.filename.endswith(".npy")]
        if not arrays:
            raise UserError(f"{path} is a zip without tensors; give a .pth by torch.save or a .npz by numpy.savez")
        size = path.stat().st_size
        claimed = sum(member.file_size for member in arrays)
        if claimed > max(UNPACKED * size, SMALL):
            raise UserError(f"{path} would unpack from {size:,} to {claimed:,} bytes; that is no checkpoint")
        found = {}
        for member in arrays:
            with archive.open(member) as stream:
                array = _array(stream, member.file_size, f"{path}: {shown(member.filename)}")
            if array is not None:
                found[member.filename.removesuffix(".npy")] = array
        return found, {}


def _array(stream: IO[bytes], size: int, name: str) -> Tensor | None:
    """One array of numbers of an npz; None where it holds text. Its header must agree with the bytes that are there."""
    version = npy.read_magic(stream)
    read = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}[version]
    shape, by_columns, dtype = read(stream)
    if dtype.hasobject:
        raise UserError(f"{name} holds Python objects, which are not run; save plain arrays by numpy.savez")
    wanted, there = math.prod(shape) * dtype.itemsize, size - stream.tell()
    if wanted != there:
        raise UserError(f"{name} claims {wanted:,} bytes of numbers and has {there:,}; fetch it again")
    if dtype == np.dtype("V2"):  # how numpy writes bfloat16
        bits = np.frombuffer(bytearray(stream.read(wanted)), np.int16)
        return torch.from_numpy(bits.reshape(shape, order="F" if by_columns else "C")).view(torch.bfloat16)
    if dtype.kind not in "fiubc":
        return None
    array = np.frombuffer(bytearray(stream.read(wanted)), dtype).astype(dtype.newbyteorder("="), copy=False)
    return torch.from_numpy(array.reshape(shape, order="F" if by_columns else "C"))


def _read_torch_legacy(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """torch before 1.6: storages are allocated by a number in the pickle, so that a large one is first tried on nothing."""
    size = path.stat().st_size
    if _largest_number(path) > size:
        from torch._subclasses import FakeTensorMode

        with FakeTensorMode():
            _within(path, _flat(_load(path)))
    return _read_torch(path, mmap=False)


def _largest_number(path: Path) -> int:
    """The largest integer that the pickles of a legacy file write, found without running them."""
    largest = 0
    with path.open("rb") as stream, suppress(ValueError):  # whether it is a pickle at all, torch will say
        for number in range(AFTER):
            for _, argument, _ in pickletools.genops(stream):
                if number >= BEFORE and isinstance(argument, int):
                    largest = max(largest, argument)
    return largest


def _read_torch(path: Path, *, mmap: bool) -> tuple[dict[str, Tensor], dict[str, Any]]:
    loaded = _load(path, mmap=mmap)
    tensors = _flat(loaded)
    _within(path, tensors)
    return {name: tensor for name, tensor in tensors.items() if not tensor.is_meta}, _arguments(loaded)


def _load(path: Path, *, mmap: bool = False) -> Any:
    """What torch unpickles with weights alone allowed, and the bag of arguments that training scripts put beside them."""
    with torch.serialization.safe_globals([argparse.Namespace]):
        if mmap and path.suffix != ".safetensors":  # torch believes that name
            return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        with path.open("rb") as stream:
            return torch.load(stream, map_location="cpu", weights_only=True)


def _within(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Refuses tensors that claim more numbers than the file has bytes for, by repeating them or by name only."""
    size = path.stat().st_size
    for name, tensor in tensors.items():
        claimed = tensor.numel() * tensor.element_size()
        if max(claimed, tensor.untyped_storage().nbytes()) > size:
            raise UserError(f"{path}: {shown(name)} claims {claimed:,} bytes, more than the whole file; fetch it again")


def _flat(value: Any, name: str = "", depth: int = 8) -> dict[str, Tensor]:
    """Tensors of nested dictionaries by dotted names, without the state of an optimizer."""
    if isinstance(value, Tensor):
        return {name: value.detach()} if name and value.layout == torch.strided and not value.is_quantized else {}
    found: dict[str, Tensor] = {}
    if isinstance(value, Mapping) and depth:
        for key, inner in value.items():
            if not str(key).startswith(("optim", "lr_sched", "scaler", "loss_scaler")):
                found |= _flat(inner, f"{name}.{key}" if name else str(key), depth - 1)
    return found


def _arguments(loaded: Any) -> dict[str, Any]:
    """The arguments of the training that a checkpoint may keep beside its weights."""
    kept: dict[str, Any] = {}
    for key in ("args", "config", "cfg", "hyper_parameters") if isinstance(loaded, Mapping) else ():
        value = loaded.get(key)
        value = vars(value) if isinstance(value, argparse.Namespace) else value
        if isinstance(value, Mapping):
            kept |= {str(name): inner for name, inner in value.items()}
    return kept

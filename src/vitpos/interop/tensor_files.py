"""A checkpoint on the disk: one file, or a folder with one, its shards and its ``config.json``."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from vitpos.errors import UserError
from vitpos.interop.formats import one_line, read_file, read_metadata
from vitpos.interop.sanitize import shown

SUFFIXES = (".safetensors", ".pth", ".pt", ".bin", ".npz", ".ckpt")
USUAL = ("model.safetensors", "pytorch_model.bin")  # how Hugging Face calls the one file of a folder
CONFIG, CONFIG_LIMIT = "config.json", 1 << 26


@dataclass(frozen=True)
class Contents:
    """What a checkpoint holds: its tensors by name, and what it says in words."""

    path: Path
    tensors: dict[str, Tensor]
    about: dict[str, Any]  # metadata of the file, arguments of the training, config.json
    config: bool = False  # whether there was a config.json


def read_tensors(path: str | Path) -> dict[str, Tensor]:
    """The tensors of a ``.safetensors``, ``.pth`` or ``.npz`` file, or of a folder with one, by name."""
    return read_contents(path).tensors


def told_in(path: str | Path) -> dict[str, str]:
    """What a safetensors file says in words, at once however large it is; {} for any other file, or none."""
    path = Path(path)
    return read_metadata(path) if path.is_file() else {}


def read_contents(path: str | Path) -> Contents:
    """Tensors, metadata and configuration of a file or folder; a stranger's, so that nothing in it is run."""
    path = Path(path)
    with one_line(path):
        if not path.exists():
            raise UserError(f"there is no {path}; give a ViT checkpoint ({', '.join(SUFFIXES)}) or a folder with one")
        if not path.is_dir() and not path.is_file():
            raise UserError(f"{path} is neither a file nor a folder; give a ViT checkpoint")
        tensors: dict[str, Tensor] = {}
        about: dict[str, Any] = {}
        files = _files(path) if path.is_dir() else {path: None}
        for file, names in files.items():
            found, said = read_file(file)
            tensors |= found if names is None else _only(file, names, found)
            about |= said
        if not tensors:
            raise UserError(f"{path} holds no tensors by name; give a state_dict saved as .safetensors or .pth")
        folder = path if path.is_dir() else path.parent if path.name in USUAL else None
        config = _json(folder / CONFIG) if folder is not None and (folder / CONFIG).is_file() else {}
        return Contents(path, tensors, about | config, bool(config))


def _files(folder: Path) -> dict[Path, list[str] | None]:
    """The files of a folder that make one checkpoint, each with the names to take from it (None: all)."""
    for usual in USUAL:
        if (folder / f"{usual}.index.json").is_file():
            return _shards(folder, folder / f"{usual}.index.json")
    for usual in USUAL:
        if (folder / usual).is_file():
            return {folder / usual: None}
    found = sorted(path for path in folder.iterdir() if path.suffix in SUFFIXES and path.is_file())
    if len(found) == 1:
        return {found[0]: None}
    if not found:
        raise UserError(f"{folder} has no checkpoint ({', '.join(SUFFIXES)}) in it; give the file or its folder")
    listed = ", ".join(shown(path.name) for path in found[:5]) + (", …" if len(found) > 5 else "")
    raise UserError(f"{folder} has {len(found)} checkpoints ({listed}); give one of them")


def _shards(folder: Path, index: Path) -> dict[Path, list[str] | None]:
    """Hugging Face's shards: which name is in which file beside the index."""
    where = _json(index).get("weight_map")
    if not isinstance(where, dict) or not where:
        raise UserError(f"{index} has no 'weight_map' of names to files; fetch it again")
    files: dict[Path, list[str] | None] = {}
    for name, file in where.items():
        if not isinstance(file, str) or Path(file).name != file or not file.isprintable():
            raise UserError(f"{index} points to {shown(file)!r}, which is not a file beside it; fetch it again")
        if not (folder / file).is_file():
            raise UserError(f"{folder} lacks {shown(file)}, which {index.name} names; fetch it too")
        names = files.setdefault(folder / file, [])
        assert names is not None
        names.append(name)
    return files


def _only(file: Path, names: list[str], found: dict[str, Tensor]) -> dict[str, Tensor]:
    """The named tensors of a shard."""
    if missing := [name for name in names if name not in found]:
        raise UserError(f"{file} lacks {shown(missing[0])!r}, which its index names; fetch it again")
    return {name: found[name] for name in names}


def _json(path: Path) -> dict[str, Any]:
    """A JSON object of a file of sensible size."""
    if path.stat().st_size > CONFIG_LIMIT:
        raise UserError(f"{path} has {path.stat().st_size:,} bytes, too many for a configuration; fetch it again")
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is no JSON ({shown(error)}); fetch it again, or move it away") from None
    if not isinstance(value, dict):
        raise UserError(f"{path} is no JSON object; fetch it again, or move it away")
    return value

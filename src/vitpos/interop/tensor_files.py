"""Reads a checkpoint from disk: one file, or a folder with one file or its shards, and its ``config.json``."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from vitpos.errors import InputError
from vitpos.interop.untrusted_files import errors_in_one_line, read_file
from vitpos.printable import sanitize
from vitpos.regular_files import read_regular

SUFFIXES = (".safetensors", ".pth", ".pt", ".bin", ".npz", ".ckpt")
DEFAULT_NAMES = ("model.safetensors", "pytorch_model.bin")  # Hugging Face's names for the file of a folder
CONFIG, MAX_CONFIG_BYTES = "config.json", 1 << 24


@dataclass(frozen=True)
class CheckpointContents:
    """What was read from a checkpoint.

    Args:
        path: the file or folder.
        tensors: name → tensor.
        config: configuration: metadata of the file, training arguments and the entries of ``config.json``.
    """

    path: Path
    tensors: dict[str, Tensor]
    config: dict[str, Any]


def read_contents(path: str | Path) -> CheckpointContents:
    """Returns the tensors and the configuration of an untrusted file or folder; no code in it is run."""
    path = Path(path)
    with errors_in_one_line(path):
        if not path.exists():
            raise InputError(
                f"{path} does not exist; give a ViT checkpoint ({', '.join(SUFFIXES)}) or a folder with one"
            )
        if not path.is_dir() and not path.is_file():
            raise InputError(f"{path} is neither a file nor a folder; give a ViT checkpoint")
        tensors: dict[str, Tensor] = {}
        config: dict[str, Any] = {}
        files = _files_in(path) if path.is_dir() else {path: None}
        for file, names in files.items():
            found, metadata = read_file(file)
            tensors |= found if names is None else _select(file, names, found)
            config |= metadata
        if not tensors:
            raise InputError(f"{path} contains no named tensors; give a state_dict saved as .safetensors or .pth")
        folder = path if path.is_dir() else path.parent if path.name in DEFAULT_NAMES else None
        file_config = read_json_object(folder / CONFIG) if folder is not None and (folder / CONFIG).is_file() else {}
        return CheckpointContents(path, tensors, config | file_config)


def _files_in(folder: Path) -> dict[Path, list[str] | None]:
    """Returns the files that form the checkpoint in a folder, each → names of the tensors to read from it (None: all)."""
    for name in DEFAULT_NAMES:
        if (folder / f"{name}.index.json").is_file():
            return _shards(folder, folder / f"{name}.index.json")
    for name in DEFAULT_NAMES:
        if (folder / name).is_file():
            return {folder / name: None}
    found = sorted(path for path in folder.iterdir() if path.suffix in SUFFIXES and path.is_file())
    if len(found) == 1:
        return {found[0]: None}
    if not found:
        raise InputError(f"{folder} contains no checkpoint ({', '.join(SUFFIXES)}); give the file or its folder")
    listed = ", ".join(sanitize(path.name) for path in found[:5]) + (", …" if len(found) > 5 else "")
    raise InputError(f"{folder} contains {len(found)} checkpoints ({listed}); give one of them")


def _shards(folder: Path, index: Path) -> dict[Path, list[str] | None]:
    """Returns shard file → names of the tensors to read from it, for a checkpoint of several files in ``folder``.

    ``index`` is the path of Hugging Face's index file, such as ``model.safetensors.index.json``.
    """
    weight_map = read_json_object(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise InputError(f"{index} has no 'weight_map' from names to files; download it again")
    files: dict[Path, list[str] | None] = {}
    for name, file in weight_map.items():
        if not isinstance(file, str) or Path(file).name != file or not file.isprintable():
            raise InputError(
                f"{index} refers to {sanitize(file)!r}, which is not a file in its folder; download it again"
            )
        if not (folder / file).is_file():
            raise InputError(f"{folder} lacks {sanitize(file)}, which {index.name} refers to; download it too")
        names = files.setdefault(folder / file, [])
        assert names is not None
        names.append(name)
    return files


def _select(file: Path, names: list[str], tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Returns name → tensor for the given ``names``; raises if one is missing.

    ``tensors`` are all tensors of the shard ``file``, which is named in the error message.
    """
    if missing := [name for name in names if name not in tensors]:
        raise InputError(f"{file} lacks {sanitize(missing[0])!r}, which its index refers to; download it again")
    return {name: tensors[name] for name in names}


def read_json_object(path: Path) -> dict[str, Any]:
    """Returns the JSON object in a file as a dictionary; raises if it is not one or has more than 16 MB."""
    if path.stat().st_size > MAX_CONFIG_BYTES:
        raise InputError(f"{path} has {path.stat().st_size:,} bytes, too many for a configuration; download it again")
    try:
        value = json.loads(read_regular(path, max_bytes=MAX_CONFIG_BYTES))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not valid JSON ({sanitize(error)}); download it again, or remove it") from None
    if not isinstance(value, dict):
        raise InputError(f"{path} is not a JSON object; download it again, or remove it")
    return value

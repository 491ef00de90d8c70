"""The weights that a training starts from (``train.weights``): finds their file and loads it into the new model.

The file is data: only its tensors and the image size of its model are read, and nothing in it names code to run. The
model is built from the settings of the new training.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from vitpos.data.dataset import Dataset
from vitpos.errors import InputError, Notice, RunError
from vitpos.files import read_json, read_tensors
from vitpos.lab.cell_folder import WEIGHTS, CellFolder
from vitpos.lab.cells import Cell
from vitpos.models import MODELS
from vitpos.models.base import Classifier, PatchClassifier, Shape
from vitpos.printable import sanitize

MAX_SCALE = 16  # maximum ratio of the image sides in the two trainings, in either direction
SHOWN = 3  # tensors that an error names


def find_weights(cell: Cell) -> Path:
    """Returns the weights file that a cell (one training) starts from, as ``cell.train.weights`` gives it.

    This is the file itself, the folder of a cell, or the folder of a run. A run must have one trained cell with the model,
    encoding and seed of ``cell``. Raises an InputError if there is no such file.
    """
    given = Path(cell.train.weights).expanduser()
    what = f"train.weights is {cell.train.weights!r}"
    if given.is_file():
        return given
    if (given / WEIGHTS).is_file():
        return given / WEIGHTS
    if not (given / "cells").is_dir():
        raise InputError(f"{what}, where nothing is trained; give a weights file, or the folder of a cell or of a run")
    wanted = {"model": cell.model, "encoding": cell.encoding, "seed": cell.seed}
    found = [path for path in sorted(given.glob(f"cells/*/{WEIGHTS}")) if _has_settings(path.parent, wanted)]
    if len(found) != 1:
        settings = f"model {cell.model}, encoding {cell.encoding} and seed {cell.seed}"
        raise InputError(
            f"{what}, which has {len(found) or 'no'} trained cells with {settings}; give the folder of one cell"
        )
    return found[0]


def _has_settings(folder: Path, wanted: Mapping[str, Any]) -> bool:
    stored = read_json(folder / "cell.json")
    return all(stored.get(key) == value for key, value in wanted.items())


def weights_hash(file: Path) -> str:
    """Returns the SHA-256 of a file in hexadecimal digits."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def without_initial_weights(cell: Cell) -> Cell:
    """Returns the settings of a training that needs its initial weights no longer, without them."""
    return replace(cell, train=replace(cell.train, weights=""))


def check_weights_origin(cell: Cell, folder: CellFolder, *, refuse_change: bool) -> None:
    """Warns if the file whose weights a training started from is gone, or has changed since.

    Does nothing if the training has not begun, or began with random weights.

    Args:
        cell: settings of the training.
        folder: its folder.
        refuse_change: whether to raise an InputError if the file has changed, because a training with these settings would
            start from other weights today.
    """
    if not cell.train.weights or not folder.begun:
        return
    stored, run = folder.initial_weights, folder.path.parent.parent
    path = Path(stored["path"])
    if not path.is_file():
        warnings.warn(
            f"train.weights: {path}, from which trainings in {run} started, is gone; they are kept", Notice, 2
        )
    elif (found := weights_hash(path)) != stored["sha256"]:
        hashes = f"sha256 {found[:12]}…, not {stored['sha256'][:12]}…"
        note = f"train.weights: {path} has changed since trainings in {run} started from it ({hashes})"
        if refuse_change:
            raise InputError(f"{note}; restore it, or use another folder")
        warnings.warn(note, Notice, 2)


def load_initial_weights(model: Classifier, cell: Cell, data: Dataset, file: Path) -> None:
    """Loads a weights file into the untrained model of a cell (one training).

    If the file's model was trained on images of another size, its position tables are resampled to the grid of ``model``
    (bicubic), by the method ``resized`` of the encoding. Raises an InputError that names the tensors if the file does not
    fit.

    Args:
        model: the model to change.
        cell: settings of the new training.
        data: its data set, which gives the size of the images.
        file: a ``weights.safetensors`` that ``vitpos run`` has written.
    """
    weights, shape = _read(file, cell, data.shape)
    if not isinstance(model, PatchClassifier) or shape == data.shape:
        _check_shapes(weights, model.state_dict(), f"{file} does not fit")
        model.load_state_dict(weights)
        return
    try:
        source: PatchClassifier = MODELS.build(cell.model, shape, len(data.classes), cell.encoding)
    except InputError as error:
        raise InputError(f"{file} was trained on images of {shape[1]}x{shape[2]} pixels: {error}") from None
    _check_shapes(weights, source.state_dict(), f"{file} does not fit")
    source.load_state_dict(weights)
    old, new = (f"{rows}x{columns}" for rows, columns in (source.geometry.grid, model.geometry.grid))
    resized = source.resized(model.geometry.grid).state_dict()
    what = f"{file} cannot be resized from {old} to {new} patches"
    _check_shapes(
        resized, model.state_dict(), what, "keep the size of the images, or fix that of these tables by an option"
    )
    model.load_state_dict(resized)


def _read(file: Path, cell: Cell, shape: Shape) -> tuple[dict[str, Tensor], Shape]:
    """Returns (weights by name, shape of the images of their model) of a weights file.

    The shape is (channels, height, width), with the channels of the new training. A file of an older version does not
    state it; it is used only if it was trained on the data of the new training.

    Args:
        cell: settings of the new training.
        shape: image shape of the new training.
    """
    try:
        weights, about = read_tensors(file)
        stored = json.loads(about["cell"])
        given = stored["image_shape"] if "image_shape" in stored or stored["data"] != cell.data else list(shape)
    except (RunError, ValueError, KeyError, TypeError):
        remedy = "give the weights.safetensors of a cell, trained by this version"
        raise InputError(
            f"{file} is damaged, or holds no model of a 'vitpos run' with its image size; {remedy}"
        ) from None
    if not isinstance(given, list) or [type(side) for side in given] != [int] * 3 or min(given) < 1:
        raise InputError(
            f"{file} states an image shape of {sanitize(given)}; give weights that 'vitpos run' has written"
        )
    _, *sides = given
    if any(not 1 / MAX_SCALE <= old / new <= MAX_SCALE for old, new in zip(sides, shape[1:], strict=True)):
        raise InputError(
            f"{file} was trained on images of {sides[0]}x{sides[1]} pixels, and the data have {shape[1]}x{shape[2]}; "
            f"choose images at most {MAX_SCALE} times as high and wide, or as small"
        )
    if not all(tensor.isfinite().all() for tensor in weights.values()):
        raise InputError(f"{file} has weights that are not finite; train it again")
    return weights, (shape[0], sides[0], sides[1])


def _check_shapes(
    found: Mapping[str, Tensor],
    wanted: Mapping[str, Tensor],
    what: str,
    remedy: str = "start from weights of the same model and encoding",
) -> None:
    """Raises an InputError that names the tensors of ``found`` that are missing, not ``wanted`` or of another shape.

    ``what`` and ``remedy`` are the beginning and the end of the message.
    """
    problems = [f"{name} is missing" for name in wanted if name not in found]
    problems += [f"{sanitize(name)} is not in the model" for name in found if name not in wanted]
    problems += [
        f"{name} is {_text(found[name])} instead of {_text(wanted[name])}"
        for name in wanted
        if name in found and found[name].shape != wanted[name].shape
    ]
    if problems:
        more = f" and {len(problems) - SHOWN} more" if len(problems) > SHOWN else ""
        raise InputError(f"{what}: {', '.join(problems[:SHOWN])}{more}; {remedy}")


def _text(tensor: Tensor) -> str:
    return "x".join(map(str, tensor.shape)) or "a number"

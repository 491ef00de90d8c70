"""Builds and loads the model of a cell, i.e. of one training of an experiment."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vitpos.data.dataset import Dataset, load
from vitpos.errors import InputError, RunError
from vitpos.files import explain_damage, read_metadata
from vitpos.interop.untrusted_files import metadata_or_empty
from vitpos.lab.cell_folder import CellFolder
from vitpos.lab.cells import Cell
from vitpos.lab.device import chosen_device
from vitpos.lab.experiment_folder import ExperimentFolder, load_run_plugins
from vitpos.lab.trust import check_data, is_trusted
from vitpos.models import MODELS
from vitpos.models.base import Classifier, PatchClassifier, Shape
from vitpos.models.image_limits import check_image_size, check_model_images
from vitpos.models.model_limits import ModelLimit
from vitpos.printable import sanitize

MAX_SIDE = 1 << 15  # pixels of an image, in a file


def build_model(cell: Cell, data: Dataset) -> Classifier:
    """Returns the untrained model of a cell (one training), on the chosen device.

    Its initial weights depend on the seed of the cell, its input and output size on the image shape and the classes of
    ``data``.
    """
    torch.manual_seed(cell.seed)
    model: Classifier = MODELS.build(cell.model, data.shape, len(data.classes), cell.encoding)
    return model.to(chosen_device())


def load_model(folder: CellFolder, data: str | None = None) -> Classifier:
    """Loads the trained model from the folder of a cell (one training) and returns it in evaluation mode.

    ``data`` is the spec of a data set with the same classes, which replaces that of the training.
    """
    cell = folder.cell if data is None else replace(folder.cell, data=data)
    weights, classes = folder.load_weights(), folder.classes
    return _load(cell, weights, classes, folder.path, trusted=folder.trusted, own_data=data is not None)


def is_vitpos_output(path: Path) -> bool:
    """Whether a path is the folder of a run or of one training, or a weights file, written by vitpos."""
    return (path / "experiment.json").exists() or (path / "cell.json").exists() or "cell" in metadata_or_empty(path)


def converted_settings(path: Path) -> Mapping[str, Any] | None:
    """Returns what a weights file of `vitpos.convert` states if its model was trained elsewhere; None for any other path.

    Such a file names no data set. It may state the classes and the preprocessing of the original checkpoint.
    """
    if not path.is_file() or "cell" not in (metadata := metadata_or_empty(path)):
        return None
    with explain_damage(path, "give a weights file of vitpos"):
        stored = json.loads(metadata["cell"])
        return stored if isinstance(stored, dict) and stored.get("data") == "" else None


def refuse_run(path: Path) -> None:
    """Raises an InputError if a path is the folder of a run instead of that of one training."""
    if (path / "experiment.json").exists() and not (path / "cell.json").exists():
        raise InputError(f"{path} is a run; give one of its cells, as {path}/cells/…")


def load_models(
    path: Path, data: str | None = None, *, need_data: bool = True
) -> Sequence[tuple[Cell, Callable[[], Classifier]]]:
    """Returns pairs (cell, function that loads its model) of all trained models in ``path``.

    A cell holds the settings of one training. ``path`` is an experiment folder, a cell folder or a weights file. No model
    is loaded before its function is called.

    Args:
        data: spec of a data set with the same classes, which replaces that of the trainings.
        need_data: whether the data set of a weights file must be there and have the classes of the file. Otherwise the
            file's own statement of image shape and classes is enough.
    """
    chosen_device()  # refuses one that is not available
    if path.is_file():
        cell, weights, classes = CellFolder.from_weights(path)
        trusted = is_trusted(path)
        if not cell.data or (not need_data and "image_shape" in json.loads(read_metadata(path)["cell"])):
            load_one = partial(_load_without_data, cell, weights, classes, path, trusted=trusted)
            return [(cell if data is None else replace(cell, data=data), load_one)]
        cell = cell if data is None else replace(cell, data=data)
        return [(cell, lambda: _load(cell, weights, classes, path, trusted=trusted, own_data=data is not None))]
    if (path / "cell.json").exists():
        load_run_plugins(path.resolve().parent.parent)
    every = [CellFolder(path)] if (path / "cell.json").exists() else ExperimentFolder.open(path).trained
    cells = [(folder.cell if data is None else replace(folder.cell, data=data), folder) for folder in every]
    found = [(cell, partial(load_model, folder, data)) for cell, folder in cells if folder.trained]
    if not found:
        raise InputError(f"{path} has no trained cell yet; finish it with 'vitpos run'")
    return found


def _load(
    cell: Cell,
    weights: Mapping[str, Tensor],
    classes: tuple[str, ...],
    path: Path,
    *,
    trusted: bool,
    own_data: bool = False,
) -> Classifier:
    """Builds the model of a cell (one training), loads its trained weights and returns it in evaluation mode.

    Args:
        weights: ``state_dict`` of the model.
        classes: names of the classes it was trained on; an InputError if the data set has others.
        path: where the weights come from, for error messages.
        trusted: whether the cell may name any data set, and a model of any size.
        own_data: whether the user gave the data set of the cell.
    """
    if not trusted and not own_data:
        check_data(cell, path)
    data = load(cell.data)
    if data.classes != classes:
        raise InputError(
            f"{path} was trained on {_listed(classes)}, and data {cell.data!r} has {_listed(data.classes)}; "
            "restore the data, or train again into a new folder"
        )
    return _with_weights(cell, lambda: build_model(cell, data), weights, path, trusted=trusted)


def _load_without_data(
    cell: Cell, weights: Mapping[str, Tensor], classes: tuple[str, ...], path: Path, *, trusted: bool
) -> Classifier:
    """Builds the model of a weights file without its data, loads its weights and returns it in evaluation mode.

    Args:
        weights: ``state_dict`` of the model.
        classes: names of its classes.
        path: the file, which states the shape of the images.
        trusted: whether the file may describe a model of any size.
    """
    shape = read_image_shape(path)
    if not trusted:
        check_image_size(str(path), shape[1:], channels=shape[0])

    def build() -> Classifier:
        model: Classifier = MODELS.build(cell.model, shape, len(classes), cell.encoding)
        return model.to(chosen_device())

    return _with_weights(cell, build, weights, path, trusted=trusted)


def read_image_shape(path: Path) -> Shape:
    """Returns (channels, height, width) of the images of the model in a weights file."""
    with explain_damage(path, "give a weights file of vitpos"):
        channels, height, width = json.loads(read_metadata(path)["cell"])["image_shape"]
        if not all(type(side) is int and 0 < side < MAX_SIDE for side in (channels, height, width)):
            raise ValueError("it states no image shape")
        return channels, height, width


def _with_weights(
    cell: Cell, build: Callable[[], Classifier], weights: Mapping[str, Tensor], path: Path, *, trusted: bool
) -> Classifier:
    """Returns the model that ``build`` returns, in evaluation mode and with these weights; see `_load`."""
    what = f"{path}: model {sanitize(cell.model)} with encoding {sanitize(cell.encoding)}"
    with nullcontext() if trusted else ModelLimit(weights, what):
        model = build()
    if not trusted and isinstance(model, PatchClassifier):
        sides = [side * one for side, one in zip(model.geometry.grid, model.patch, strict=True)]
        check_model_images(model, (model.channels, sides[0], sides[1]), str(path))
    try:
        dtype = next((tensor.dtype for tensor in weights.values() if tensor.is_floating_point()), torch.float32)
        model.to(dtype=dtype).load_state_dict(weights)
    except RuntimeError as error:
        reason = sanitize(str(error).splitlines()[-1].strip(), limit=160)
        raise RunError(
            f"{path} holds weights of another version of vitpos ({reason}); delete it and run the experiment again"
        ) from None
    return model.eval()


def _listed(classes: Sequence[str]) -> str:
    shown = ", ".join(map(sanitize, classes[:3]))
    return f"{len(classes)} classes ({shown}{', …' if len(classes) > 3 else ''})"

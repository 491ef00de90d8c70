"""Builds and loads the model of a cell, i.e. of one training of an experiment."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from vitpos.data.dataset import Dataset, load
from vitpos.errors import InputError, RunError
from vitpos.lab.cell_folder import CellFolder
from vitpos.lab.cells import Cell
from vitpos.lab.experiment_folder import ExperimentFolder, load_run_plugins
from vitpos.lab.model_limits import ModelLimit
from vitpos.lab.trust import check_data, is_trusted
from vitpos.models import MODELS
from vitpos.models.base import Classifier
from vitpos.printable import sanitize


def build_model(cell: Cell, data: Dataset) -> Classifier:
    """Returns the untrained model of a cell (one training), on a GPU if there is one.

    Its initial weights depend on the seed of the cell, its input and output size on the image shape and the classes of
    ``data``.
    """
    torch.manual_seed(cell.seed)
    model: Classifier = MODELS.build(cell.model, data.shape, len(data.classes), cell.encoding)
    return model.to("cuda" if torch.cuda.is_available() else "cpu")


def load_model(folder: CellFolder, data: str | None = None) -> Classifier:
    """Loads the trained model from the folder of a cell (one training) and returns it in evaluation mode.

    ``data`` is the spec of a data set with the same classes, which replaces that of the training.
    """
    cell = folder.cell if data is None else replace(folder.cell, data=data)
    weights, classes = folder.load_weights(), folder.classes
    return _load(cell, weights, classes, folder.path, trusted=folder.trusted, own_data=data is not None)


def load_models(path: Path, data: str | None = None) -> Sequence[tuple[Cell, Callable[[], Classifier]]]:
    """Returns pairs (cell, function that loads its model) of all trained models in ``path``.

    A cell holds the settings of one training. ``path`` is an experiment folder, a cell folder or a weights file. No model
    is loaded before its function is called.

    Args:
        data: spec of a data set with the same classes, which replaces that of the trainings.
    """
    if path.is_file():
        cell, weights, classes = CellFolder.from_weights(path)
        cell = cell if data is None else replace(cell, data=data)
        trusted = is_trusted(path)
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
    what = f"{path}: model {sanitize(cell.model)} with encoding {sanitize(cell.encoding)}"
    with nullcontext() if trusted else ModelLimit(weights, what):
        model = build_model(cell, data)
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        reason = sanitize(str(error).splitlines()[-1].strip(), limit=160)
        raise RunError(
            f"{path} holds weights of another version of vitpos ({reason}); delete it and run the experiment again"
        ) from None
    return model.eval()


def _listed(classes: Sequence[str]) -> str:
    shown = ", ".join(map(sanitize, classes[:3]))
    return f"{len(classes)} classes ({shown}{', …' if len(classes) > 3 else ''})"

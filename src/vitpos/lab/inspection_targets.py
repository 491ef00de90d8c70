"""Finds the models and checkpoints that ``vitpos inspect`` can inspect in a path."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from vitpos.data.dataset import load
from vitpos.inspection.inspect import Target, target_from_checkpoint, target_from_model
from vitpos.interop.checkpoint import read_checkpoint
from vitpos.interop.grids import Grid
from vitpos.interop.untrusted_files import read_metadata
from vitpos.lab.cell_models import load_models
from vitpos.lab.cells import Cell
from vitpos.models.base import Classifier

LoadTarget = Callable[[], Target]


def find_targets(path: Path, grid: Grid | None = None, data: str | None = None) -> list[tuple[str, LoadTarget]]:
    """Returns pairs (name, load function) of the models or checkpoints in a path.

    A load function returns a `Target`: a model or checkpoint with the metadata and tensors that an inspection needs.

    Args:
        path: folder of a run or of one training, a weights file of vitpos, or a checkpoint of another library.
        grid: rows and columns of patches, for checkpoints that do not store them.
        data: spec of the data set on which models of vitpos are inspected; by default that of their training.
    """
    if is_vitpos_output(path):
        models = load_models(path, data)
        names = _names([cell for cell, _ in models])
        return [(name, partial(_load_cell, name, *model)) for name, model in zip(names, models, strict=True)]
    return [(str(path), lambda: target_from_checkpoint(read_checkpoint(path, grid=grid)))]


def is_vitpos_output(path: Path) -> bool:
    """Whether a path is the folder of a run or of one training, or a weights file, written by vitpos."""
    return (path / "experiment.json").exists() or (path / "cell.json").exists() or "cell" in read_metadata(path)


def _names(cells: Sequence[Cell]) -> list[str]:
    """Returns a name for each training from its encoding, model, data and seed, such as ``rope · vit · mnist · seed 0``.

    If several trainings all have the same model, the names leave it out; likewise the data.
    """
    parts = [[cell.label, cell.model, cell.data, f"seed {cell.seed}"] for cell in cells]
    shown = [n for n in range(4) if n in (0, 3) or len({part[n] for part in parts}) > 1 or len(cells) == 1]
    return [" · ".join(part[n] for n in shown) for part in parts]


def _load_cell(name: str, cell: Cell, load_model: Callable[[], Classifier]) -> Target:
    return target_from_model(name, load_model(), load(cell.data), encoding=cell.encoding)

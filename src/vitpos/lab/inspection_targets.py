"""Finds the models and checkpoints that ``vitpos inspect`` can inspect in a path."""

from __future__ import annotations

from collections.abc import Callable
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


def find_targets(path: Path, grid: Grid | None = None) -> list[tuple[str, LoadTarget]]:
    """Returns pairs (name, load function) of the models or checkpoints in a path.

    A load function returns a `Target`: a model or checkpoint with the metadata and tensors that an inspection needs.

    Args:
        path: folder of a run or of one training, a weights file of vitpos, or a checkpoint of another library.
        grid: rows and columns of patches, for checkpoints that do not store them.
    """
    if is_vitpos_output(path):
        return [(_name(cell), partial(_load_cell, cell, load_model)) for cell, load_model in load_models(path)]
    return [(str(path), lambda: target_from_checkpoint(read_checkpoint(path, grid=grid)))]


def is_vitpos_output(path: Path) -> bool:
    """Whether a path is the folder of a run or of one training, or a weights file, written by vitpos."""
    return (path / "experiment.json").exists() or (path / "cell.json").exists() or "cell" in read_metadata(path)


def _name(cell: Cell) -> str:
    return f"{cell.label} · {cell.model} · {cell.data} · seed {cell.seed}"


def _load_cell(cell: Cell, load_model: Callable[[], Classifier]) -> Target:
    return target_from_model(_name(cell), load_model(), load(cell.data), encoding=cell.encoding)

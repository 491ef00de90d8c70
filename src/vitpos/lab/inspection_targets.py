"""Finds the models and checkpoints that ``vitpos inspect`` can inspect in a path."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from vitpos.data.dataset import load
from vitpos.errors import InputError
from vitpos.inspection.inspect import Target, target_from_checkpoint, target_from_model
from vitpos.interop.checkpoint import read_checkpoint
from vitpos.interop.grids import Grid
from vitpos.interop.load import is_hub_name
from vitpos.interop.pretrained import ModelConfig, from_pretrained, is_saved
from vitpos.lab.cell_models import is_vitpos_output, load_models
from vitpos.lab.cells import Cell
from vitpos.lab.open_models import is_checkpoint, open_checkpoint
from vitpos.lab.trust import trusts_everything
from vitpos.models.base import Classifier, PatchClassifier

LoadTarget = Callable[[], Target]


def find_targets(
    path: Path, grid: Grid | None = None, data: str | None = None, architecture: str | None = None
) -> list[tuple[str, LoadTarget]]:
    """Returns pairs (name, load function) of the models or checkpoints in a path.

    A load function returns a `Target`: a model or checkpoint with the metadata and tensors that an inspection needs.

    Args:
        path: folder of a run or of one training, a weights file of vitpos, or a checkpoint of another library.
        grid: rows and columns of patches, for checkpoints that do not store them.
        data: spec of the data set on which models are run; by default that of the training of a model of vitpos. Without
            it, only the position tensors of another checkpoint are inspected.
        architecture: name of the timm model of a file that does not state it, which is then run on ``data``.
    """
    if is_hub_name(path):
        return [(str(path), lambda: _run_checkpoint(path, None, data, architecture))]
    if is_vitpos_output(path) and not is_checkpoint(path):
        models = load_models(path, data)
        names = _names([cell for cell, _ in models])
        return [(name, partial(_load_cell, name, *model)) for name, model in zip(names, models, strict=True)]
    if is_saved(path) or is_vitpos_output(path):
        if data is None:
            return [(str(path), lambda: _tensors_of(path))]
        return [(str(path), lambda: _run_checkpoint(path, None, data, architecture))]
    if data is None:
        return [(str(path), lambda: target_from_checkpoint(read_checkpoint(path, grid=grid)))]
    return [
        (
            str(path),
            lambda: _run_checkpoint(path, target_from_checkpoint(read_checkpoint(path, grid=grid)), data, architecture),
        )
    ]


def _run_checkpoint(path: Path, target: Target | None, data: str | None, architecture: str | None) -> Target:
    """Returns the target of a checkpoint from elsewhere that is run on test images.

    Args:
        path: the checkpoint, ``timm:NAME`` or ``hf:NAME``.
        target: what was read from its file; None if the model was loaded by name.
    """
    opened = open_checkpoint(path, data, architecture=architecture, need_classes=False)
    model, title = opened.model, str(path)
    if not isinstance(model, PatchClassifier):
        if target is None:
            raise InputError(f"{title} has no patches and no positions to inspect; give a Vision Transformer")
        target.metadata["skipped"] = "the model has no patches on one grid, so that it is not run on images"
        return target
    ran = target_from_model(title, model, opened.data, encoding=opened.cell.encoding)
    ran.metadata["images"] = " ".join(opened.notes)
    if target is None:
        ran.metadata["format"] = title.partition(":")[0] if is_hub_name(path) else "vitpos"
        return ran
    if "skipped" in ran.metadata:
        target.metadata["skipped"] = ran.metadata["skipped"]
    target.metadata.update({"images": ran.metadata["images"], "heads": ran.metadata["heads"]})
    return replace(
        target,
        table=ran.table if target.table is None else target.table,
        biases=target.biases or ran.biases,
        frequencies=ran.frequencies if target.frequencies is None else target.frequencies,
        model=ran.model,
        data=ran.data,
    )


def _tensors_of(path: Path) -> Target:
    """Returns the target of a model of vitpos that states no data, so that it is not run."""
    if is_saved(path):
        model = from_pretrained(path, trust=trusts_everything())
        encoding = ModelConfig.of(model).encoding
    else:
        ((cell, make),) = load_models(path)
        model, encoding = make(), cell.encoding
    target = target_from_model(str(path), model, None, encoding=encoding)
    target.metadata["skipped"] = "no data were given"
    return target


def _names(cells: Sequence[Cell]) -> list[str]:
    """Returns a name for each training from its encoding, model, data and seed, such as ``rope · vit · mnist · seed 0``.

    If several trainings all have the same model, the names leave it out; likewise the data.
    """
    parts = [[cell.label, cell.model, cell.data, f"seed {cell.seed}"] for cell in cells]
    shown = [n for n in range(4) if n in (0, 3) or len({part[n] for part in parts}) > 1 or len(cells) == 1]
    return [" · ".join(part[n] for n in shown) for part in parts]


def _load_cell(name: str, cell: Cell, load_model: Callable[[], Classifier]) -> Target:
    return target_from_model(name, load_model(), load(cell.data), encoding=cell.encoding)

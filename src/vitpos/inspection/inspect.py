"""``inspect(target)``: numbers and figures of the position encoding of a model or checkpoint, in up to three sections."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from vitpos.data.dataset import Dataset
from vitpos.encodings.rope_dino import frequencies_on_grid
from vitpos.errors import InputError, Notice
from vitpos.inspection.budget import Budget
from vitpos.inspection.model import inspect_model
from vitpos.inspection.offsets import inspect_offsets, offset_biases, rotary_frequencies
from vitpos.inspection.section import Figure, Section
from vitpos.inspection.table import inspect_table
from vitpos.inspection.table_stats import position_table
from vitpos.interop.checkpoint import Checkpoint
from vitpos.models.base import Classifier, PatchClassifier
from vitpos.models.swin import Stage, Swin


@dataclass(frozen=True)
class Target:
    """What :func:`inspect` inspects: a model or checkpoint, with its metadata and the tensors of its position encoding.

    Args:
        name: title of the inspection.
        metadata: format, encodings, grid, depth and so on, as in ``inspect.json``.
        table: (R, C, D), vectors added to the patch tokens; None if there are none.
        biases: layer name → bias of the attention logits at each offset (H, 2R − 1, 2C − 1).
        decomposed: layer name → a vector per row offset (2R − 1, d) and per column offset (2C − 1, d), as in SAM.
        frequencies: (depth, H, pairs, 2), rotary frequencies in radians per row and column; depth and H are 1 where
            shared.
        model: the model to run; None for a checkpoint, and for a model with windowed attention.
        data: data set on whose test images the model is run.
    """

    name: str
    metadata: dict[str, Any]  # format, encodings, grid, depth and so on, as in inspect.json
    table: Tensor | None = None  # (R, C, D), vectors added to the patch tokens
    biases: dict[str, Tensor] = field(default_factory=dict)  # by layer: (H, 2R − 1, 2C − 1)
    decomposed: dict[str, tuple[Tensor, Tensor]] = field(default_factory=dict)  # by layer: (2R − 1, d), (2C − 1, d)
    frequencies: Tensor | None = None  # (depth, H, pairs, 2), radians per row and column
    model: PatchClassifier | None = None  # None if it cannot be run on one grid
    data: Dataset | None = None


@dataclass(frozen=True)
class Inspection:
    """The result of inspecting a model or checkpoint (``target``): a list of sections, each with numbers and figures.

    The sections are ``table`` (added vectors), ``offsets`` (biases and rotary frequencies) and ``model`` (activations),
    as far as they apply. If there is none, ``reason`` says why.
    """

    target: Target
    sections: list[Section]
    reason: str = ""

    @property
    def numbers(self) -> dict[str, Any]:
        """Returns the content of ``inspect.json``: name and metadata of the target, and section name → its numbers.

        If no section applies to the target, the entry ``reason`` says why.
        """
        numbers = {"name": self.target.name, **self.target.metadata}
        numbers |= {section.name: section.numbers for section in self.sections}
        if not self.sections:
            numbers["reason"] = self.reason or _reason(self.target)
        return numbers

    @property
    def figures(self) -> dict[str, Figure]:
        """Returns figure name → figure, for the figures of all sections."""
        return {figure.name: figure for section in self.sections for figure in section.figures}


def inspect(
    target: Target, *, images: int = 256, shown: Dataset | None = None, extra: bool = False, seed: int = 0
) -> list[Section]:
    """Inspects a model or a checkpoint; returns the sections that apply to it, each with numbers and figures.

    ``table``: the vectors added to patch tokens. ``offsets``: attention biases by offset, and rotary frequencies.
    ``model``: tokens, logits and attention of the model on test images of its data set.

    Args:
        target: what is inspected, made by `target_from_model` or `target_from_checkpoint`.
        images: number of test images on which a model is run, sampled with ``seed``.
        shown: data set whose test images attention is drawn on; a few test images of the target's data by default.
        extra: also predict row and column from the added vectors by SVM and MLP, and project these vectors by UMAP. It
            takes minutes and needs scikit-learn and umap-learn (the extra ``analysis`` of vitpos).

    Tensors that exceed the `Budget` of an inspection are subsampled or left out; a warning says so.
    """
    sections, budget = [], Budget()
    notes: list[str] = []
    table = budget.table(target.table, notes)
    if table is not None:
        sections.append(inspect_table(table, extra=extra, seed=seed))
    biases, decomposed = budget.biases(target.biases, notes), budget.decomposed(target.decomposed, notes)
    frequencies = budget.frequencies(target.frequencies, notes)
    if biases or decomposed or frequencies is not None:
        sections.append(inspect_offsets(biases, frequencies, decomposed))
    if notes:
        target.metadata["reduced"] = notes
        warnings.warn(f"{target.name} is too large to inspect as a whole: {'; '.join(notes)}", Notice, 2)
    if target.model is not None and target.data is not None:
        sections.append(inspect_model(target.model, target.data, images=images, shown=shown, seed=seed))
    return sections


def _reason(target: Target) -> str:
    if target.model is None and not target.metadata.get("grid") and target.metadata.get("encodings"):
        return "the grid is unknown; give --grid, such as 14x14"
    return "no positions are stored, and there is no model with global attention to run"


def target_from_model(name: str, model: Classifier, data: Dataset | None, *, encoding: str) -> Target:
    """Returns the inspection target of a vitpos model: its position tensors and metadata, the model and its data.

    Args:
        name: title of the inspection.
        data: data set on whose test images the model is run; None if it is not run.
        encoding: text that describes the encoding, such as ``rope(base=10)``; it is only shown.
    """
    if not isinstance(model, PatchClassifier):
        raise InputError(
            f"{name}: a model without patches has no positions to inspect; use a vit, minimal or swin model"
        )
    geometry = model.geometry
    metadata = {
        "format": "vitpos",
        "encodings": {encoding: "as trained"},
        "grid": list(geometry.grid),
        "grid_source": "the model",
        "axes": "row-major, rows before columns",
        "prefix_tokens": ["prefix"] * geometry.num_prefix,
        "patch": list(model.patch),
        "dim": geometry.dim,
        "depth": geometry.depth,
        "heads": geometry.heads,
    }
    if model.windowed:
        metadata["skipped"] = "attention is windowed, and probes and attention maps need one grid"
    return Target(
        name,
        metadata,
        table=position_table(model),
        biases=_model_biases(model),
        frequencies=rotary_frequencies(model.encoding),
        model=None if model.windowed or data is None else model,
        data=data,
    )


def _model_biases(model: PatchClassifier) -> dict[str, Tensor]:
    """Returns ``layer 1``, ``layer 2``, … → bias of the logits at each offset (H, 2R − 1, 2C − 1).

    For Swin the layers of all stages are included. Empty if the model has no such bias.
    """
    if isinstance(model, Swin):
        stages = [stage for stage in model.stages if isinstance(stage, Stage)]
        tables = [offset_biases(stage.encoding, stage.geometry) for stage in stages]
    else:
        tables = [offset_biases(model.encoding, model.geometry, train_grid=model.train_grid)]
    layers = [layer for table in tables if table is not None for layer in table]
    return {f"layer {number}": layer for number, layer in enumerate(layers, 1)}


def target_from_checkpoint(checkpoint: Checkpoint) -> Target:
    """Returns the inspection target of a checkpoint: its position tensors and metadata, without a model to run."""
    metadata: dict[str, Any] = {
        "format": checkpoint.format,
        "encodings": checkpoint.encodings,
        "grid": list(checkpoint.grid) if checkpoint.grid else None,
        "grid_source": checkpoint.grid_source,
        "axes": checkpoint.axes,
        "prefix_tokens": list(checkpoint.prefix_tokens),
        "patch": list(checkpoint.patch) if checkpoint.patch else None,
        "channels": checkpoint.channels,
        "dim": checkpoint.dim,
        "depth": checkpoint.depth,
        "heads": checkpoint.heads,
        "prefix_norms": None if checkpoint.prefix is None else checkpoint.prefix.norm(dim=1).tolist(),
    }
    biases = {_layer_name(name): table.permute(2, 0, 1) for name, table in checkpoint.biases.items() if table.any()}
    if checkpoint.biases and not biases:
        metadata["biases"] = "all biases are 0, as before training"
    decomposed = {_layer_name(name): pair for name, pair in checkpoint.decomposed.items()}
    frequencies = None if checkpoint.frequencies is None else checkpoint.frequencies.mT
    if checkpoint.periods is not None and checkpoint.grid is not None:
        frequencies = frequencies_on_grid(2 * math.pi / checkpoint.periods, checkpoint.grid)[None, None]
    return Target(str(checkpoint.path), metadata, checkpoint.table, biases, decomposed, frequencies)


def _layer_name(name: str) -> str:
    """Returns the part of a tensor name before its attention: ``blocks.3`` for ``blocks.3.attn.rel_pos``."""
    return name.split(".attn")[0].split(".attention")[0]

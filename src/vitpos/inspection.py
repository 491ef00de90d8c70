"""Look inside: which encoding is it, and what did it learn? Of our runs, and of anyone's checkpoint."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from torch import Tensor

from vitpos import lab
from vitpos.analysis.looks import Look, look_at_offsets, look_at_table, look_at_work
from vitpos.analysis.offsets import offset_biases, rotary_frequencies
from vitpos.analysis.similarity import position_vectors
from vitpos.attacks.pictures import own
from vitpos.cells import Cell
from vitpos.data.base import Dataset, load
from vitpos.encodings.rope_dino import waves_on
from vitpos.errors import UserError
from vitpos.interop.checkpoints import Checkpoint, open_checkpoint
from vitpos.interop.files import read_contents
from vitpos.models.base import Classifier, PatchClassifier

Grid = tuple[int, int]


@dataclass(frozen=True)
class Subject:
    """What is looked at: the facts that are known of it, and whatever it holds."""

    name: str
    about: dict[str, Any]
    table: Tensor | None = None  # (R, C, D), what is added to tokens
    biases: dict[str, Tensor] = field(default_factory=dict)  # by layer: (H, 2R − 1, 2C − 1)
    waves: Tensor | None = None  # (depth, H, pairs, 2)
    model: PatchClassifier | None = None
    data: Dataset | None = None


@dataclass(frozen=True)
class Inspection:
    """A subject and what was seen of it."""

    subject: Subject
    look: Look


def subjects(path: Path, grid: Grid | None = None) -> list[tuple[str, Callable[[], Subject]]]:
    """What a folder of a run, a file of weights of ours or anyone's checkpoint holds, by name, each made when called."""
    if (path / "experiment.json").exists() or (path / "cell.json").exists() or _ours(path):
        if grid is not None:
            raise UserError(f"{path} is a model of ours, which knows its grid; leave --grid out")
        return [(_named(cell), partial(_of_cell, cell, make)) for cell, make in lab.trained(path)]
    return [(path.name, lambda: of_checkpoint(open_checkpoint(path, grid=grid)))]


def _ours(path: Path) -> bool:
    return path.is_file() and path.suffix == ".safetensors" and "cell" in read_contents(path).about


def _named(cell: Cell) -> str:
    return f"{cell.encoding} · {cell.model} · {cell.data} · seed {cell.seed}"


def _of_cell(cell: Cell, make: Callable[[], Classifier]) -> Subject:
    return of_model(_named(cell), make(), load(cell.data), encoding=cell.encoding)


def of_model(name: str, model: Classifier, data: Dataset, *, encoding: str) -> Subject:
    """A model of ours with the pictures that it reads."""
    if not isinstance(model, PatchClassifier):
        raise UserError(f"{name}: a model without patches has no positions to look at; take a vit, attention or swin")
    geometry = model.geometry
    vectors = position_vectors(model)
    biases = None if model.by_slot else offset_biases(model.encoding, geometry)
    about = {
        "kind": "vitpos",
        "encodings": {encoding: "as trained"},
        "grid": list(geometry.grid),
        "grid_source": "the model",
        "axes": "row-major, rows before columns",
        "prefix_tokens": geometry.prefix,
        "patch": list(model.patch),
        "dim": geometry.dim,
        "depth": geometry.depth,
        "heads": geometry.heads,
    }
    return Subject(
        name,
        about,
        table=vectors.unflatten(0, geometry.grid) if vectors.any() else None,
        biases={} if biases is None else {f"layer {layer}": table for layer, table in enumerate(biases)},
        waves=rotary_frequencies(model.encoding),
        model=None if model.by_slot else model,
        data=data,
    )


def of_checkpoint(found: Checkpoint) -> Subject:
    """A foreign checkpoint: its tables, without a model to run."""
    about = {
        "kind": found.naming,
        "encodings": found.encodings,
        "grid": list(found.grid) if found.grid else None,
        "grid_source": found.grid_source,
        "axes": found.axes,
        "prefix_tokens": list(found.tokens),
        "patch": list(found.patch) if found.patch else None,
        "dim": found.dim,
        "depth": found.depth,
        "heads": found.heads,
    }
    biases = {name.split(".attn")[0]: table.permute(2, 0, 1) for name, table in found.relative.items()}
    waves = None if found.frequencies is None else found.frequencies.mT
    if found.periods is not None and found.grid is not None:
        waves = waves_on(2 * math.pi / found.periods, found.grid)[None, None]
    return Subject(found.path.name, about, found.table, biases, waves)


def inspect(
    subject: Subject, *, images: int = 256, files: Sequence[Path] = (), slow: bool = False, seed: int = 0
) -> Inspection:
    """All numbers and figures of a subject, each where it has what they need; attention on pictures of one's own."""
    if files and (subject.model is None or subject.data is None):
        raise UserError(f"{subject.name} is no model that could look at {files[0]}; leave --image out")
    numbers: dict[str, Any] = {"name": subject.name, **subject.about}
    figures: dict[str, Figure] = {}
    for name, look in _looks(subject, images, files, slow, seed):
        numbers[name] = look.numbers
        figures |= look.figures
    return Inspection(subject, Look(numbers, figures))


def _looks(subject: Subject, images: int, files: Sequence[Path], slow: bool, seed: int) -> Iterator[tuple[str, Look]]:
    if subject.table is not None:
        yield "table", look_at_table(subject.table, slow=slow, seed=seed)
    if subject.biases or subject.waves is not None:
        yield "offsets", look_at_offsets(subject.biases, subject.waves)
    if subject.model is not None and subject.data is not None:
        shown = own(subject.model, subject.data, files) if files else None
        yield "work", look_at_work(subject.model, subject.data, images=images, shown=shown, seed=seed)

"""Look inside: which encoding is it, and what did it learn? Of our runs, and of anyone's checkpoint."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from vitpos import lab
from vitpos.attacks.pictures import own
from vitpos.cells import Cell
from vitpos.data.base import Dataset, load
from vitpos.encodings.rope_dino import waves_on
from vitpos.errors import UserError, WorkError
from vitpos.inspection.model import look_at_work
from vitpos.inspection.offset_tables import offset_biases, rotary_frequencies
from vitpos.inspection.offsets import look_at_offsets
from vitpos.inspection.section import Drawn, Look
from vitpos.inspection.similarity import position_vectors
from vitpos.inspection.table import look_at_table
from vitpos.interop.checkpoint import Checkpoint, open_checkpoint
from vitpos.interop.grids import Grid
from vitpos.interop.tensor_files import told_in
from vitpos.models.base import Classifier, PatchClassifier
from vitpos.models.swin import Stage, Swin
from vitpos.store import Folder


@dataclass(frozen=True)
class Subject:
    """What is looked at: the facts that are known of it, and whatever it holds."""

    name: str
    about: dict[str, Any]
    table: Tensor | None = None  # (R, C, D), what is added to tokens
    biases: dict[str, Tensor] = field(default_factory=dict)  # by layer: (H, 2R − 1, 2C − 1)
    decomposed: dict[str, tuple[Tensor, Tensor]] = field(default_factory=dict)  # by layer: (2R − 1, d), (2C − 1, d)
    waves: Tensor | None = None  # (depth, H, pairs, 2)
    model: PatchClassifier | None = None
    data: Dataset | None = None


@dataclass(frozen=True)
class Inspection:
    """A subject and what was seen of it."""

    subject: Subject
    look: Look


def subjects(path: Path, grid: Grid | None = None) -> list[tuple[str, Callable[[], Subject]]]:
    """What a folder of a run, a file of weights of ours or anyone's checkpoint holds, by name, each made when called.

    Models of ours know their ``grid``; it is for checkpoints that cannot say theirs.
    """
    if ours(path):
        return [(_named(cell), partial(_of_cell, cell, make)) for cell, make in lab.trained(path)]
    return [(str(path), lambda: of_checkpoint(open_checkpoint(path, grid=grid)))]


def unfinished(path: Path) -> str:
    """How many cells of a run are not trained yet, in words; nothing if all are."""
    if not (path / "experiment.json").exists():
        return ""
    folder = Folder.open(path)
    every = folder.experiment.cells
    left = len(every) - len([run for _, run in folder.runs if run.trained])
    return f"{left} of {len(every)} cells" if left else ""


def ours(path: Path) -> bool:
    """Whether it is a run, a cell of one or a file of weights of ours."""
    return (path / "experiment.json").exists() or (path / "cell.json").exists() or "cell" in told_in(path)


def _named(cell: Cell) -> str:
    return f"{cell.told} · {cell.model} · {cell.data} · seed {cell.seed}"


def _of_cell(cell: Cell, make: Callable[[], Classifier]) -> Subject:
    return of_model(_named(cell), make(), load(cell.data), encoding=cell.encoding)


def of_model(name: str, model: Classifier, data: Dataset, *, encoding: str) -> Subject:
    """A model of ours with the pictures that it reads."""
    if not isinstance(model, PatchClassifier):
        raise UserError(f"{name}: a model without patches has no positions to look at; take a vit, attention or swin")
    geometry = model.geometry
    vectors = position_vectors(model)
    about = {
        "kind": "vitpos",
        "encodings": {encoding: "as trained"},
        "grid": list(geometry.grid),
        "grid_source": "the model",
        "axes": "row-major, rows before columns",
        "prefix_tokens": ["prefix"] * geometry.prefix,
        "patch": list(model.patch),
        "dim": geometry.dim,
        "depth": geometry.depth,
        "heads": geometry.heads,
    }
    if model.by_slot:
        about["unwatched"] = "attention stays in windows, which probes and maps of a whole grid do not fit"
    return Subject(
        name,
        about,
        table=vectors.unflatten(0, geometry.grid) if vectors.any() else None,
        biases=_biases(model),
        waves=rotary_frequencies(model.encoding),
        model=None if model.by_slot else model,
        data=data,
    )


def _biases(model: PatchClassifier) -> dict[str, Tensor]:
    """The tables of biases by layer, of a Swin those of the windows of each stage."""
    if isinstance(model, Swin):
        stages = [stage for stage in model.stages if isinstance(stage, Stage)]
        tables = [offset_biases(stage.encoding, stage.geometry) for stage in stages]
    else:
        tables = [offset_biases(model.encoding, model.geometry)]
    layers = [layer for table in tables if table is not None for layer in table]
    return {f"layer {number}": layer for number, layer in enumerate(layers, 1)}


def of_checkpoint(found: Checkpoint) -> Subject:
    """A foreign checkpoint: its tables, without a model to run."""
    about: dict[str, Any] = {
        "kind": found.naming,
        "encodings": found.encodings,
        "grid": list(found.grid) if found.grid else None,
        "grid_source": found.grid_source,
        "axes": found.axes,
        "prefix_tokens": list(found.tokens),
        "patch": list(found.patch) if found.patch else None,
        "channels": found.channels,
        "dim": found.dim,
        "depth": found.depth,
        "heads": found.heads,
        "prefix_norms": None if found.prefix is None else found.prefix.norm(dim=1).tolist(),
    }
    biases = {_layer(name): table.permute(2, 0, 1) for name, table in found.relative.items() if table.any()}
    if found.relative and not biases:
        about["biases"] = "all biases are 0, as before any training"
    decomposed = {_layer(name): pair for name, pair in found.decomposed.items()}
    waves = None if found.frequencies is None else found.frequencies.mT
    if found.periods is not None and found.grid is not None:
        waves = waves_on(2 * math.pi / found.periods, found.grid)[None, None]
    return Subject(str(found.path), about, found.table, biases, decomposed, waves)


def _layer(name: str) -> str:
    """What tells a layer in the name of a tensor: all that comes before its attention."""
    return name.split(".attn")[0].split(".attention")[0]


def inspect(
    subject: Subject, *, images: int = 256, files: Sequence[Path] = (), slow: bool = False, seed: int = 0
) -> Inspection:
    """All numbers and figures of a subject, each where it has what they need; attention on pictures of one's own."""
    if files and (subject.model is None or subject.data is None):
        raise UserError(f"{subject.name} is no model that could look at {files[0]}; leave --image out")
    numbers: dict[str, Any] = {"name": subject.name, **subject.about}
    figures: dict[str, Drawn] = {}
    for name, look in _looks(subject, images, files, slow, seed):
        numbers[name] = look.numbers
        figures |= look.figures
    if len(numbers) == 1 + len(subject.about):
        unknown = subject.model is None and not subject.about.get("grid") and subject.about.get("encodings")
        nothing = "nothing about places is stored, and there is no model of one grid to be watched"
        numbers["why"] = "its grid is not known; give --grid, as 14x14" if unknown else nothing
    return Inspection(subject, Look(numbers, figures))


def inspect_each(
    every: Sequence[tuple[str, Callable[[], Subject]]],
    look: Callable[[str, Callable[[], Inspection]], Inspection],
    **options: Any,
) -> Iterator[Inspection]:
    """Inspects several subjects, each by ``look(name, work)``; of those that cannot be looked at, why.

    If there is only one, or nothing is left, that is an error.
    """
    seen = 0
    for number, (name, make) in enumerate(every, 1):
        try:
            yield look(name, lambda make=make: inspect(make(), **options))  # type: ignore[misc]
            seen += 1
        except (UserError, WorkError) as error:
            if not seen and number == len(every):
                raise
            yield Inspection(Subject(name, {}), Look({"name": name, "why": str(error)}))


def _looks(subject: Subject, images: int, files: Sequence[Path], slow: bool, seed: int) -> Iterator[tuple[str, Look]]:
    if subject.table is not None:
        yield "table", look_at_table(subject.table, slow=slow, seed=seed)
    if subject.biases or subject.decomposed or subject.waves is not None:
        yield "offsets", look_at_offsets(subject.biases, subject.waves, subject.decomposed)
    if subject.model is not None and subject.data is not None:
        shown = own(subject.model, subject.data, files, fit=True) if files else None
        yield "work", look_at_work(subject.model, subject.data, images=images, shown=shown, seed=seed)

"""Evaluates a checkpoint from elsewhere and stores the results in a folder, as those of a run are stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from vitpos.errors import InputError
from vitpos.evaluations import EVALUATIONS
from vitpos.files import read_json, require_folder, write_json
from vitpos.lab import events
from vitpos.lab.cell_folder import CellFolder
from vitpos.lab.cells import Cell
from vitpos.lab.evaluate import evaluate_with_events
from vitpos.lab.events import Observer
from vitpos.lab.experiment import Experiment
from vitpos.lab.experiment_folder import ExperimentFolder
from vitpos.lab.machine import machine
from vitpos.lab.open_models import OpenedModel
from vitpos.lab.results import Results
from vitpos.lab.runner import sample_images
from vitpos.lab.trust import sign

CLASSES = "classes.json"  # in the folder of the results
NAME = "evaluate"  # in the column "experiment" of results.csv


@dataclass(frozen=True)
class _EvaluatedCell(CellFolder):
    """The folder with the results of a checkpoint, which has no weights: these stay where they are."""

    @property
    def trained(self) -> bool:
        """Whether results are stored."""
        return (self.path / "scores.json").exists()

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the outputs of the checkpoint."""
        return tuple(map(str, read_json(self.path / CLASSES)["classes"]))


@dataclass(frozen=True)
class _EvaluationFolder(ExperimentFolder):
    """The output folder of an evaluation, with the one cell of the checkpoint."""

    def cell_folder(self, cell: Cell) -> CellFolder:
        """Returns the folder of the results, which may not exist yet."""
        return _EvaluatedCell(self.path / "cells" / cell.folder_name)


def require_new_folder(out: Path) -> None:
    """Raises an InputError if a folder for results cannot be written, or holds results already."""
    require_folder(out)
    if (out / "results.csv").exists() or (out / "experiment.json").exists():
        raise InputError(f"{out} already holds results; give a new folder")


def evaluate_checkpoint(
    opened: OpenedModel, specs: Sequence[str], out: Path, observer: Observer, command: str = ""
) -> tuple[Results, list[str]]:
    """Evaluates a checkpoint and stores the results in ``out``: ``results.csv``, and numbers and arrays in ``cells``.

    Returns (the results, the evaluations in canonical form).

    Args:
        opened: The checkpoint with its data.
        specs: Evaluations, as texts such as ``jigsaw(per='image')``.
        out: Output folder without results.
        observer: Receives the events.
        command: The command that repeats the evaluation, for the report.
    """
    require_new_folder(out)
    wanted = list(dict.fromkeys(EVALUATIONS.canonical(spec) for spec in specs))
    cell = replace(opened.cell, evaluations=tuple(wanted))
    question = f"What does {cell.model} score?"
    experiment = Experiment(NAME, (cell,), (), question=question, notes=opened.notes, definition={"command": command})
    folder = _EvaluationFolder(out, experiment)
    kept = folder.cell_folder(cell)
    evaluated = evaluate_with_events(cell, opened.model, opened.data, wanted, observer)
    for number, (spec, result) in enumerate(evaluated):
        if not number:
            sign(out)
            write_json(kept.path / "machine.json", machine())
            write_json(kept.path / CLASSES, {"classes": opened.data.classes})
            kept.save_samples(sample_images(opened.data))
        kept.save_result(spec, result)
    results = Results(folder)
    results.write_csv()
    observer.on_event(events.CellDone(cell))
    return results, wanted

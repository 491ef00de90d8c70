"""The main path: experiment → data → model → fit → evaluate → store."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import torch

from vitpos.data.base import Dataset, load
from vitpos.errors import UserError, WorkError
from vitpos.evaluations import EVALUATIONS
from vitpos.experiment import Cell, Experiment
from vitpos.models import MODELS
from vitpos.models.base import Classifier
from vitpos.store import Folder, Run, only_one
from vitpos.training.fit import fit


class Watch:
    """Who follows a run; this one looks away. The command line shows progress with another."""

    def start(self, cell: Cell, images: int, done: int) -> None:
        """A cell begins to train on ``images`` in all, ``done`` of them before."""

    def tick(self, images: int) -> None:
        """So many more images have been trained on."""

    def measure(self, cell: Cell, evaluation: str) -> None:
        """An evaluation begins."""

    def finish(self, cell: Cell, folder: Folder) -> None:
        """A cell is trained and measured."""

    def fail(self, cell: Cell, error: WorkError) -> None:
        """A cell could not be finished; the others go on."""


def run(experiment: Experiment, out: Path, *, watch: Watch | None = None) -> Folder:
    """Runs an experiment, or what is left of it, into a folder; a cell that fails does not stop the others."""
    watch = watch or Watch()
    for cell in {cell.row: cell for cell in experiment.cells}.values():  # before anything is trained or written
        check(cell)
    folder = Folder.create(out, experiment)
    failed = 0
    with only_one(folder.path):
        for cell in experiment.cells:
            try:
                run_cell(cell, folder, watch)
                watch.finish(cell, folder)
            except WorkError as error:
                failed += 1
                watch.fail(cell, error)
            folder.write_results()
    if failed:
        raise WorkError(f"{failed} of {len(experiment.cells)} cells failed; the others are finished")
    return folder


def run_cell(cell: Cell, folder: Folder, watch: Watch) -> Run:
    """Trains and measures one cell, as far as that is not done yet."""
    run = Run.create(folder.run_of(cell).path, cell)
    if not run.trained:
        train(cell, run, watch)
    open_questions = [spec for spec in cell.evaluate if spec not in run.scores]
    if open_questions:
        evaluate(run, open_questions, watch=watch)
    return run


def train(cell: Cell, run: Run, watch: Watch) -> None:
    """Trains a cell from its last checkpoint, or from the start, to its weights."""
    data = load(cell.data)
    model = build(cell, data)
    done, tensors, log = run.checkpoint() or (0, None, [])
    watch.start(cell, cell.train.epochs * len(data.train), done * len(data.train))
    resume = (done, tensors) if tensors else None
    for state in fit(model, data, cell.train, seed=cell.seed, resume=resume, tick=watch.tick):
        if state.record:
            log.append(state.record)
        run.save_checkpoint(state.epoch, state.tensors, log)
    run.finish(model, log)


def evaluate(run: Run, specs: Iterable[str], *, watch: Watch | None = None) -> None:
    """Asks questions of a trained run and keeps the answers with it."""
    cell = run.cell
    data = load(cell.data)
    model = restore(run)
    for spec in specs:
        if watch:
            watch.measure(cell, spec)
        run.add_scores(spec, EVALUATIONS.build(spec, model, data))


def build(cell: Cell, data: Dataset) -> Classifier:
    """The untrained model of a cell; its weights depend on the cell's seed alone."""
    torch.manual_seed(cell.seed)
    return MODELS.build(cell.model, data.shape, len(data.classes), cell.encoding)


def restore(run: Run) -> Classifier:
    """The trained model of a run, ready to be asked."""
    model = build(run.cell, load(run.cell.data))
    model.load_state_dict(run.weights())
    return model.eval()


def check(cell: Cell) -> None:
    """Tells now what would go wrong after hours: data, a model or an evaluation that cannot be had, by a rehearsal."""
    try:
        data = load(cell.data)
        model = build(cell, data)
        few = replace(data, train=data.train.first(8), test=data.test.first(8))
        for spec in cell.evaluate:
            EVALUATIONS.build(spec, model, few)
    except UserError as error:
        raise UserError(f"{cell.model} with encoding {cell.encoding} on {cell.data}: {error}") from None

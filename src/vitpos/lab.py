"""The main path: experiment → data → model → fit → evaluate → store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from vitpos.attacks.recovery import Recovery
from vitpos.catalog import suggest
from vitpos.cells import Cell, Table
from vitpos.data.dataset import Dataset, load
from vitpos.errors import UserError, WorkError
from vitpos.evaluations.predict import remembering
from vitpos.experiment import Experiment
from vitpos.models import MODELS
from vitpos.models.base import Classifier
from vitpos.questions import QUESTIONS
from vitpos.store import Folder, Run
from vitpos.training.augment.base import build_augment
from vitpos.training.defenses import build_defense
from vitpos.training.loop import fit, refuse
from vitpos.workers import Event, alone, cores, spread


class Watch:
    """Who follows a run; this one looks away. The command line shows progress with another."""

    def check(self, done: int, all: int) -> None:
        """So many of all rows have been rehearsed."""

    def start(self, cell: Cell, images: int, done: int) -> None:
        """A cell begins to train on ``images`` in all, ``done`` of them before."""

    def tick(self, cell: Cell, images: int) -> None:
        """So many more images have been trained on."""

    def ask(self, cell: Cell, spec: str, done: int, all: int) -> None:
        """A trained cell is asked a question; so many of all have been answered."""

    def finish(self, cell: Cell, folder: Folder) -> None:
        """A cell is trained and measured."""

    def fail(self, cell: Cell, error: WorkError) -> None:
        """A cell could not be finished; the others go on."""


def run(experiment: Experiment, out: Path, *, workers: int | None = None, watch: Watch | None = None) -> Folder:
    """Runs an experiment, or what is left of it, into a folder; a cell that fails does not stop the others.

    ``workers`` processes share the cells and the cores; without a number, one for each core. The last bits of a cell's
    weights depend on the number of threads that train it, which is the cores divided by the workers.
    """
    watch = watch or Watch()
    check(Folder(out, experiment).unfinished, experiment.tables, watch.check)  # before anything is trained or written
    failed: list[Cell] = []
    with Folder.working(out, experiment) as folder:

        def hear(event: Event) -> None:
            name, cell, about = event
            if name in ("finish", "fail"):
                folder.write_results()
            if name == "fail":
                failed.append(cell)
            getattr(watch, name)(cell, *(about if name != "finish" else (folder,)))

        spread(run_cell, experiment.cells, folder.path, _workers(workers, experiment), hear)
    if failed:
        raise WorkError(f"{len(failed)} of {len(experiment.cells)} cells failed; the others are finished")
    return folder


def run_cell(cell: Cell, folder: Path, say: Callable[[Event], None]) -> None:
    """Trains and measures one cell, as far as that is not done yet."""
    run = Run.create(folder / "cells" / cell.key, cell)
    if not run.trained:
        train(cell, run, say)
    specs = [spec for spec in cell.evaluate if spec not in run.scores]
    evaluate(run, specs, lambda spec, done: say(("ask", cell, (spec, done, len(specs)))))


def train(cell: Cell, run: Run, say: Callable[[Event], None]) -> None:
    """Trains a cell from its last checkpoint, or from the start, to its weights."""
    data = load(cell.data)
    model = build(cell, data)
    done, tensors, log = run.checkpoint() or (0, None, [])
    say(("start", cell, (cell.train.epochs * len(data.train), done * len(data.train))))
    resume = (done, tensors) if tensors else None
    states = fit(model, data, cell.train, seed=cell.seed, resume=resume, tick=lambda n: say(("tick", cell, (n,))))
    for state in states:
        if state.record:
            log.append(state.record)
        run.save_checkpoint(state.epoch, state.tensors, log)
    run.finish(model, log)


def evaluate(run: Run, specs: Sequence[str], told: Callable[[str, int], None] = lambda spec, done: None) -> None:
    """Asks questions of a trained run and keeps the answers with it; ``told`` hears each before it is asked."""
    if specs:
        data, model = load(run.cell.data), restore(run)
        with remembering():
            for done, spec in enumerate(specs):
                told(spec, done)
                answer = ask(spec, model, data)
                if answer.why or answer.found is not None:
                    run.add_pictures(spec, answer)
                run.add_scores(spec, answer.numbers)


def ask(spec: str, model: Classifier, data: Dataset) -> Recovery:
    """What an evaluation or an attack says of a trained model; an evaluation has numbers alone."""
    answer = QUESTIONS.build(spec, model, data)
    return answer if isinstance(answer, Recovery) else Recovery(answer)


def build(cell: Cell, data: Dataset) -> Classifier:
    """The untrained model of a cell; its weights depend on the cell's seed alone."""
    torch.manual_seed(cell.seed)
    model: Classifier = MODELS.build(cell.model, data.shape, len(data.classes), cell.encoding)
    model.defense = cell.train.defense
    return model.to("cuda" if torch.cuda.is_available() else "cpu")


def restore(run: Run) -> Classifier:
    """The trained model of a run, ready to be asked."""
    return rebuild(run.cell, run.weights(), run.path)


def rebuild(cell: Cell, weights: Mapping[str, Tensor], path: Path) -> Classifier:
    """The model of a cell with its trained weights, which ``path`` held."""
    model = build(cell, load(cell.data))
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        reason = str(error).splitlines()[-1].strip()
        raise WorkError(f"{path} holds weights of another vitpos ({reason}); delete it and run it again") from None
    return model.eval()


def trained(path: Path) -> Sequence[tuple[Cell, Callable[[], Classifier]]]:
    """The models that a folder of an experiment, a folder of a cell or a file of weights holds, each made when called."""
    if path.is_file():
        cell, weights = Run.told_by(path)
        return [(cell, lambda: rebuild(cell, weights, path))]
    runs = [Run(path)] if (path / "cell.json").exists() else [run for _, run in Folder.open(path).runs]
    found = [(run.cell, partial(restore, run)) for run in runs if run.trained]
    if not found:
        raise UserError(f"{path} has no trained cell yet; finish it with 'vitpos run'")
    return found


def check(
    cells: Iterable[Cell], tables: Sequence[Table] = (), told: Callable[[int, int], None] = lambda done, all: None
) -> None:
    """Tells now what would go wrong after hours, by a rehearsal on two images: data, models, evaluations, metrics."""
    kinds = list({_kind(cell): cell for cell in cells}.values())
    with alone():  # for two images threads would only wait for each other
        for name in dict.fromkeys(cell.data for cell in kinds):
            load(name)  # what has to be fetched or installed is told first
        for number, cell in enumerate(kinds):
            told(number, len(kinds))
            _rehearse(cell, tables)
    told(len(kinds), len(kinds))


def _kind(cell: Cell) -> tuple[object, ...]:
    """What a rehearsal of a cell depends on: not its seed, nor how long it trains."""
    train = cell.train
    return cell.data, cell.model, cell.encoding, cell.evaluate, train.batch_size, train.augment, train.defense


def _rehearse(cell: Cell, tables: Sequence[Table]) -> None:
    """Builds a cell's model and asks it everything on two images."""
    try:
        data = load(cell.data)
        model = build(cell, data)
        few = replace(data, train=data.train.head(2), test=data.test.head(2))
        refuse(model, cell.train)
        build_defense(cell.train.defense)
        build_augment(cell.train.augment).prepare_batch(few, few.train.images[:], few.train.labels)
        gives = {spec: ask(_brief(spec), model, few).numbers for spec in cell.evaluate}
    except UserError as error:
        raise UserError(f"{cell.model} with encoding {cell.encoding} on {cell.data}: {error}") from None
    for table in tables:
        for column in table.columns if table.shows(cell) else ():
            given = gives.get(column.evaluation)
            if given and column.metric not in given and not _numbered(column.metric, given):
                known = suggest(column.metric, given)
                raise UserError(f"table {table.title!r}: {column.evaluation} has no metric {column.metric!r}; {known}")


def _numbered(metric: str, given: Iterable[str]) -> bool:
    """Whether a metric such as ``tokens_3`` is only beyond the layers, sizes or steps that this cell has."""
    stem, _, number = metric.rpartition("_")
    return number.isdecimal() and any(other.rpartition("_")[0] == stem for other in given)


def _brief(spec: str) -> str:
    """The same question with one step where it takes a number of them."""
    (term,) = QUESTIONS.parse(spec)
    option = QUESTIONS.describe(term.name).options.get("steps")
    if option and isinstance(option.default, int):
        term.options["steps"] = min(1, term.options.get("steps", 1))
    return str(term)


def _workers(asked: int | None, experiment: Experiment) -> int:
    """As many as asked for, else one per core (one in all where there is a GPU), but never more than cells."""
    usual = 1 if torch.cuda.is_available() else cores()
    return max(1, min(asked or usual, len(experiment.cells)))

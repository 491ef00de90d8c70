"""The dry run: every configuration is tried on two images before anything is trained or written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from vitpos.catalog import suggest
from vitpos.data.base import load
from vitpos.errors import UserError
from vitpos.lab.cell_models import build_model, evaluate_spec
from vitpos.lab.cells import Cell, Table
from vitpos.lab.events import DryRun, Observer
from vitpos.lab.executor import single_threaded
from vitpos.questions import QUESTIONS
from vitpos.training.augment import augmenting
from vitpos.training.defences import defending
from vitpos.training.fit import refuse, refuse_data


def dry_run(cells: Iterable[Cell], tables: Sequence[Table] = (), observer: Observer | None = None) -> None:
    """Raises now what would go wrong after hours, by a run on two images: data, models, evaluations, metrics."""
    observer = observer or Observer()
    configurations = list({_configuration(cell): cell for cell in cells}.values())
    with single_threaded():  # for two images threads would only wait for each other
        for name in dict.fromkeys(cell.data for cell in configurations):
            load(name)  # data that cannot be had are an error before anything else
        for number, cell in enumerate(configurations):
            observer.on_event(DryRun(number, len(configurations)))
            _dry_run_cell(cell, tables)
    observer.on_event(DryRun(len(configurations), len(configurations)))


def _configuration(cell: Cell) -> tuple[object, ...]:
    """What a dry run of a cell depends on: not its seed, nor how long it trains."""
    train = cell.train
    return cell.data, cell.model, cell.encoding, cell.evaluate, train.batch, train.augment, train.defence


def _dry_run_cell(cell: Cell, tables: Sequence[Table]) -> None:
    """Builds a cell's model and runs every evaluation on two images."""
    try:
        data = load(cell.data)
        model = build_model(cell, data)
        few = replace(data, train=data.train.first(2), test=data.test.first(2))
        refuse_data(model, data, cell.train)
        refuse(model, cell.train)
        defending(cell.train.defence)
        if len(few.train):
            augmenting(cell.train.augment).batch(few, few.train.images[:], few.train.labels)
        gives = {spec: evaluate_spec(_shortened_spec(spec), model, few).numbers for spec in cell.evaluate}
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


def _shortened_spec(spec: str) -> str:
    """The same evaluation with one step where it takes a number of them."""
    (term,) = QUESTIONS.parse(spec)
    option = QUESTIONS.describe(term.name).options.get("steps")
    if option and isinstance(option.default, int):
        term.options["steps"] = min(1, term.options.get("steps", 1))
    return str(term)

"""The dry run: executes every configuration of an experiment on two images before anything is trained or written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from vitpos.data.dataset import load
from vitpos.errors import InputError
from vitpos.evaluations import EVALUATIONS
from vitpos.evaluations.context import EvalContext
from vitpos.evaluations.result import Result
from vitpos.lab.cell_models import build_model
from vitpos.lab.cells import Cell
from vitpos.lab.downloads import dataset_option
from vitpos.lab.events import DryRun, Observer
from vitpos.lab.executor import single_threaded
from vitpos.lab.initial_weights import find_weights, load_initial_weights
from vitpos.lab.stand_ins import substitute
from vitpos.lab.tables import Column, Table
from vitpos.registry import suggest
from vitpos.registry.plugins import plugin_errors
from vitpos.training.augment.base import build_augment
from vitpos.training.defenses import build_defense
from vitpos.training.loop import check_data, check_recipe


def dry_run(
    cells: Iterable[Cell],
    tables: Sequence[Table] = (),
    observer: Observer | None = None,
    stand_ins: Mapping[str, str] | None = None,
) -> dict[Cell, int]:
    """Builds the model of every configuration, runs its evaluations on two images, and checks the columns of tables.

    Raises the errors that a run would otherwise raise after hours of training. Returns cell (one training) → number of
    parameters of its model.

    Args:
        cells: trainings to check; those that differ only in their seed are checked once.
        tables: result tables, whose columns must name metrics that the evaluations return.
        observer: receives DryRun events with the progress.
        stand_ins: data sets that are replaced, spec → spec, as ``cifar10`` → ``noise``.
    """
    observer, stand_ins = observer or Observer(), stand_ins or {}
    groups: dict[tuple[object, ...], list[Cell]] = {}
    for cell in cells:
        groups.setdefault(_configuration(cell), []).append(cell)
        if cell.train.weights:
            find_weights(cell)  # each seed may start from a file of its own
    parameters: dict[Cell, int] = {}
    with single_threaded():  # several threads are slower on two images
        for data in dict.fromkeys(cell.data for cell, *_ in groups.values()):
            load(substitute(data, stand_ins))  # missing data is reported before any other error
        for number, group in enumerate(groups.values()):
            cell = group[-1]
            observer.on_event(DryRun(number, len(groups)))
            with plugin_errors(f"{cell.model} with encoding {cell.encoding} on {cell.data}"):
                parameters |= dict.fromkeys(group, _dry_run_cell(cell, tables, stand_ins))
    observer.on_event(DryRun(len(groups), len(groups)))
    return parameters


def _configuration(cell: Cell) -> tuple[object, ...]:
    """Returns the settings of a cell (one training) that its dry run depends on, as a key; without seed and epochs."""
    train = cell.train
    specs = cell.data, cell.model, cell.encoding, cell.evaluations, train.augment, train.defense
    return *specs, train.batch_size, train.weights, train.log_test_accuracy


def _dry_run_cell(cell: Cell, tables: Sequence[Table], stand_ins: Mapping[str, str]) -> int:
    """Builds the model of one training, runs its evaluations on two images and checks its table columns.

    Returns the number of parameters of the model. ``stand_ins`` are data sets that are replaced, spec → spec.
    """
    try:
        data = load(substitute(cell.data, stand_ins))
        model = build_model(cell, data)
        few = replace(data, train=data.train.head(2), test=data.test.head(2))
        check_data(model, data, cell.train)
        check_recipe(model, cell.train)
        if cell.train.weights:
            load_initial_weights(model, cell, data, find_weights(cell))
        build_defense(cell.train.defense)
        if len(few.train):
            build_augment(cell.train.augment).prepare_batch(few, few.train.images[:], few.train.labels)
        ctx = EvalContext(model, few, cell.train)
        returned = {spec: ctx.evaluate(_trial_spec(spec, stand_ins)) for spec in cell.evaluations}
    except InputError as error:
        raise InputError(f"{cell.model} with encoding {cell.encoding} on {cell.data}: {error}") from None
    for table in tables:
        for column in table.columns if table.shows(cell) else ():
            if column.evaluation in returned:
                _check_column(table, column, returned[column.evaluation])
    return sum(parameter.numel() for parameter in model.parameters())


def _check_column(table: Table, column: Column, result: Result) -> None:
    """Raises an InputError if a table column names a metric, curve or array that its evaluation does not return.

    Args:
        table: the table that has the column, for the message.
        result: what the evaluation returned in the dry run; nothing is checked if it is empty.
    """
    if not (result.numbers or result.curves or result.arrays):
        return  # the evaluation does not apply to this model
    kind, known = "metric", [*result.numbers]
    if column.x is not None:
        kind, known = "curve", [*result.curves]
    if column.at is not None:
        kind, known = "array", [*result.arrays]
    if column.metric not in known:
        remedy = suggest(column.metric, known)
        raise InputError(f"table {table.title!r}: {column.evaluation} has no {kind} {column.metric!r}; {remedy}")


def _trial_spec(spec: str, stand_ins: Mapping[str, str]) -> str:
    """Returns an evaluation such as ``gradient_matching(steps=500)`` with ``steps`` of at most 1, if it has that option.

    A data set in its option ``dataset`` is replaced as ``stand_ins`` (spec → spec) gives.
    """
    (term,) = EVALUATIONS.parse(spec)
    if dataset := dataset_option(spec):
        term.options["dataset"] = substitute(dataset, stand_ins)
    option = EVALUATIONS.describe(term.name).options.get("steps")
    if option and isinstance(option.default, int):
        term.options["steps"] = min(1, term.options.get("steps", 1))
    return str(term)

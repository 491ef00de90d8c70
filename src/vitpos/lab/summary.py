"""Computes the rows of result tables: mean and standard deviation over the seeds of each model, per column."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from vitpos.evaluations.result import Result
from vitpos.lab.cell_folder import CellFolder
from vitpos.lab.cells import Cell
from vitpos.lab.results import Results
from vitpos.lab.tables import Column, Table
from vitpos.metrics.statistics import Difference, ci_half_width, paired_difference

MANY = 40  # evaluations with more numbers than this are not shown in a table
AS_STORED = "As in results.csv: fractions are from 0 to 1."


@dataclass(frozen=True)
class Estimate:
    """One entry of a result table: its values by seed, their statistics, and the published value if there is one."""

    by_seed: dict[int, float]
    published: float | None
    percent: bool  # whether it is shown in percent
    difference: Difference | None = None  # paired difference from the baseline row
    ratio: float | None = None  # mean divided by the mean of the baseline row, if the column shows it

    @property
    def values(self) -> tuple[float, ...]:
        """The measured values, one per seed."""
        return tuple(self.by_seed.values())

    @property
    def mean(self) -> float:
        """Mean of the values over seeds."""
        return statistics.fmean(self.values)

    @property
    def std(self) -> float:
        """Standard deviation (n − 1) of the values over seeds; 0 for one seed."""
        return statistics.stdev(self.values) if len(self.values) > 1 else 0.0

    @property
    def constant(self) -> bool:
        """Whether all seeds have the same value, as for a number of parameters; False for values shown in percent."""
        return not self.percent and len(set(self.values)) == 1

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % confidence interval of the mean over seeds (Student's t).

        None for one seed, or if all seeds have the same value (unless in percent).
        """
        if len(self.values) < 2 or self.constant:
            return None
        half = ci_half_width(self.values)
        return self.mean - half, self.mean + half

    @property
    def direction(self) -> int:
        """1 if the values are significantly higher than those of the table's baseline encoding, −1 if lower, otherwise 0.

        The test is whether the 95 % interval of the paired difference over seeds excludes 0.
        """
        if self.difference is None or not self.difference.significant:
            return 0
        return 1 if self.difference.mean > 0 else -1


@dataclass(frozen=True)
class Row:
    """One table row: an estimate per column over trainings that differ only in their seed.

    ``cell`` holds the settings of the first of these trainings.
    """

    cell: Cell
    estimates: tuple[Estimate, ...]

    @property
    def has_values(self) -> bool:
        """Whether any column of the row has a measured value."""
        return any(estimate.values for estimate in self.estimates)

    def label(self, name: str) -> str:
        """Returns a setting of the row as text, such as ``rope``; ``none`` if it is empty.

        Args:
            name: heading of the setting: ``trained on``, ``model``, ``encoding`` or a training option such as ``train.lr``.
        """
        cell = self.cell
        known = {"trained on": cell.data, "model": cell.model, "encoding": cell.encoding}
        value = known[name] if name in known else cell.train_value(name)
        return "none" if value == "" else str(value)


def seeds_of(rows: Sequence[Row]) -> int:
    """Returns the largest number of seeds in any entry of the rows."""
    return max((len(estimate.values) for row in rows for estimate in row.estimates), default=0)


def labels(rows: Sequence[Row]) -> list[str]:
    """Returns the headings of the settings in which rows differ, such as ``["model", "encoding", "train.lr"]``.

    ``encoding`` is always among them. `shared` gives the model and data that all rows have in common.
    """
    trained_on = ["trained on"] if len({row.cell.data for row in rows}) > 1 else []
    model = ["model"] if len({row.cell.model for row in rows}) > 1 else []
    return [*trained_on, *model, "encoding", *dict.fromkeys(key for row in rows for key, _ in row.cell.varied)]


def grouped(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Returns groups of table rows that differ only in their encoding, as a dictionary settings → rows.

    A key is a text with the other settings in which the groups differ, such as ``vit(depth=6), lr 0.1``; it is empty if
    there is one group.
    """
    groups: dict[str, list[Row]] = {}
    names = [name for name in labels(rows) if name != "encoding"]
    for row in rows:
        words = (f"{name} {row.label(name)}".removeprefix("model ").removeprefix("train.") for name in names)
        groups.setdefault(", ".join(words), []).append(row)
    return groups


def summarize(results: Results, table: Table) -> list[Row]:
    """Returns the rows of a table, one per group of trainings that differ only in their seed.

    A missing number is an estimate without values. If the table has a baseline encoding, the other rows hold their
    differences from its row.
    """
    groups: dict[tuple[object, ...], list[Cell]] = {}
    for cell in results.experiment.cells:
        if table.shows(cell):
            groups.setdefault(cell.group, []).append(cell)
    rows = []
    for cells in groups.values():
        estimates = (_estimate(results, cells, column) for column in table.columns)
        rows.append(Row(cells[0], tuple(estimates)))
    return [_with_differences(row, rows, table) for row in rows] if table.baseline else rows


def _with_differences(row: Row, rows: Sequence[Row], table: Table) -> Row:
    """Returns ``row`` with its differences from the baseline row, and ratios to it for columns that show them.

    The baseline row has the table's baseline encoding, and the same data, model and training options as ``row``. If there
    is no such row, ``row`` is returned unchanged.

    Args:
        rows: all rows of the table.
    """

    def rest(cell: Cell) -> tuple[object, ...]:
        return cell.data, cell.model, cell.varied

    base = next((r for r in rows if r.cell.encoding == table.baseline and rest(r.cell) == rest(row.cell)), row)
    if base is row:
        return row
    estimates = []
    for column, ours, theirs in zip(table.columns, row.estimates, base.estimates, strict=True):
        ratio = ours.mean / theirs.mean if column.show_ratio and ours.values and theirs.values and theirs.mean else None
        estimates.append(replace(ours, difference=paired_difference(ours.by_seed, theirs.by_seed), ratio=ratio))
    return replace(row, estimates=tuple(estimates))


def remaining_table(results: Results) -> Table:
    """Returns a table of the stored numbers that no table of the experiment shows."""
    tables = results.experiment.tables
    shown = {(column.evaluation, column.metric, column.x) for table in tables for column in table.columns}
    columns = (column for spec in results.evaluations for column in _stored_columns(results, spec))
    left = tuple(column for column in columns if (column.evaluation, column.metric, column.x) not in shown)
    return Table("Also measured", left, note=AS_STORED)


def evaluation_table(results: Results, spec: str) -> Table:
    """Returns a table of all numbers that an evaluation, such as ``jigsaw(per='image')``, has stored."""
    return Table(spec, tuple(_stored_columns(results, spec)), note=AS_STORED)


def _stored_columns(results: Results, spec: str) -> list[Column]:
    """Returns a column for each number and curve point that evaluation ``spec`` has stored for any training.

    A training is ignored if the evaluation has stored more than 40 numbers and curve points for it.
    """
    points: dict[tuple[str, float | None], None] = {}
    for cell, _ in results.trained:
        result = results.of(cell).get(spec, Result())
        found: list[tuple[str, float | None]] = [(metric, None) for metric in result.numbers]
        found += [(metric, x) for metric, curve in result.curves.items() for x in curve]
        points |= dict.fromkeys(found) if len(found) <= MANY else {}
    columns = (Column("", spec, metric, percent=False, x=x) for metric, x in points)
    return [replace(column, label=f"{spec}: {column.name}") for column in columns]


def complete(results: Results, table: Table) -> bool:
    """Whether all trainings and evaluations that a table shows are finished."""
    return all(results.is_done(cell) for cell in results.experiment.cells if table.shows(cell))


def _estimate(results: Results, cells: Sequence[Cell], column: Column) -> Estimate:
    """Returns one table entry: the values of a column by seed, and the published value if there is one.

    NaN and infinite values are left out.

    Args:
        cells: trainings that differ only in their seed.
    """
    first = cells[0]
    found = {
        cell.seed: _value(results.folder.cell_folder(cell), results.of(cell), column)
        for cell in cells
        if results.is_trained(cell)
    }
    wanted = (first.data, first.model, first.encoding, column.evaluation, column.metric, column.x)
    published = (n for n in results.experiment.published if n.key == wanted)
    values = {seed: value for seed, value in found.items() if math.isfinite(value)}
    return Estimate(values, next((number.value for number in published), None), column.percent)


def _value(folder: CellFolder, results: Mapping[str, Result], column: Column) -> float:
    """Returns the number that a column shows for one training; NaN if it is missing.

    Args:
        folder: folder of the training, from which arrays are read.
        results: its results by evaluation, without arrays.
    """
    result = results.get(column.evaluation, Result())
    if column.at is not None:
        array = folder.load_result(column.evaluation).arrays.get(column.metric)
        try:
            return math.nan if array is None else float(array[column.at])
        except (IndexError, RuntimeError):  # an entry that this array does not have, or a whole row
            return math.nan
    if column.x is not None:
        return result.curves.get(column.metric, {}).get(column.x, math.nan)
    return result.numbers.get(column.metric, math.nan)

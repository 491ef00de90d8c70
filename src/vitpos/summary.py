"""What an experiment's tables show: seeds brought together, figures from elsewhere beside ours."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from vitpos.cells import Cell, Column, Table
from vitpos.experiment import Experiment
from vitpos.metrics.statistics import Difference, ci_half_width, paired_difference
from vitpos.store import Folder, Scores

MANY = 40  # an evaluation of more numbers than this is no matter for a table


@dataclass(frozen=True)
class Figure:
    """One number of a table: mean and standard deviation (n − 1) over seeds, and what another source says."""

    by_seed: dict[int, float]
    reference: float | None
    percent: bool
    difference: Difference | None = None  # from the row that the table compares with
    times: float | None = None  # the mean as a multiple of that row's, where the column asks for it

    @property
    def values(self) -> tuple[float, ...]:
        """One for each seed."""
        return tuple(self.by_seed.values())

    @property
    def text(self) -> str:
        """As a reader sees it: ``94.02`` or ``94.02 ± 0.11``, in percent where the column is, or ``48.1 (1.25×)``."""
        if not self.values:
            return "–"
        return self._text if self.times is None else f"{self._text} ({self.times:.2f}×)"

    @property
    def _text(self) -> str:
        mean = self._show(self.mean)
        digits = len(mean.partition(".")[2]) if "e" not in mean else 0  # the deviation is told as finely as the mean
        if digits and not self.percent and 0 < self.deviation < 0.5 / 10**digits:
            mean = f"{self.mean:#,.4g}"  # 0.48 as 0.4800: otherwise the deviation would seem to be nothing
            digits = len(mean.partition(".")[2])
        deviation = f"{self.deviation:,.{digits}f}" if digits and not self.percent else self._show(self.deviation)
        return mean if len(self.values) == 1 or self._counted else f"{mean} ± {deviation}"

    @property
    def _counted(self) -> bool:
        """Whether it is a number that no seed changes."""
        return not self.percent and len(set(self.values)) == 1

    @property
    def short(self) -> str:
        """The mean alone, to three figures."""
        if not self.values:
            return "–"
        return f"{100 * self.mean:.1f}" if self.percent else f"{self.mean:.3g}"

    @property
    def mark(self) -> str:
        """Whether it is higher or lower than in the row compared with, beyond what seeds do."""
        if self.difference is None or not self.difference.significant:
            return ""
        return " ▲" if self.difference.mean > 0 else " ▼"

    @property
    def interval(self) -> str:
        """The 95 % interval of the mean, and what it is made of."""
        if len(self.values) < 2:
            return ""
        half = ci_half_width(self.values)
        each = ", ".join(f"{self._show(value)} (seed {seed})" for seed, value in self.by_seed.items())
        return f"95 % interval {self._show(self.mean - half)} to {self._show(self.mean + half)}: {each}"

    @property
    def bounds(self) -> str:
        """The 95 % interval of the mean alone: ``[93.75, 94.29]``; none of one seed or of a number that no seed changes."""
        if len(self.values) < 2 or self._counted:
            return ""
        half = ci_half_width(self.values)
        return f"[{self._show(self.mean - half)}, {self._show(self.mean + half)}]"

    @property
    def difference_text(self) -> str:
        """The difference from the row compared with and its 95 % interval."""
        if self.difference is None:
            return "–"
        mean, half = self.difference.mean, self.difference.half_width
        sign = "+" if mean > 0 else ""
        interval = f" [{self._show(mean - half)}, {self._show(mean + half)}]" if math.isfinite(half) else ""
        return f"{sign}{self._show(mean)}{interval}{self.mark}"

    @property
    def mean(self) -> float:
        """Over the seeds there are."""
        return statistics.fmean(self.values)

    @property
    def deviation(self) -> float:
        """Over the seeds there are; 0 for one."""
        return statistics.stdev(self.values) if len(self.values) > 1 else 0.0

    @property
    def reference_text(self) -> str:
        """What the other source says, in the same unit."""
        return "" if self.reference is None else self._show(self.reference)

    def _show(self, value: float) -> str:
        if self.percent:
            return f"{100 * value:.2f}"
        return f"{value:,.0f}" if float(value).is_integer() and math.isfinite(value) else f"{value:,.4g}"


@dataclass(frozen=True)
class Row:
    """The figures of the cells that differ by their seed alone."""

    cell: Cell
    figures: tuple[Figure, ...]

    def label(self, name: str) -> str:
        """What the row is, under one of the table's :func:`labels`."""
        cell = self.cell
        known = {"trained on": cell.data, "model": cell.model, "encoding": cell.encoding}
        value = known[name] if name in known else getattr(cell.train, name.removeprefix("train."))
        return "none" if value == "" else str(value)


def seeds_of(rows: Sequence[Row]) -> int:
    """The largest number of seeds behind a figure."""
    return max((len(figure.values) for row in rows for figure in row.figures), default=0)


def labels(rows: Sequence[Row]) -> list[str]:
    """The headings that tell the rows apart; what all share is said by :func:`shared`."""
    trained_on = ["trained on"] if len({row.cell.data for row in rows}) > 1 else []
    model = ["model"] if len({row.cell.model for row in rows}) > 1 else []
    return [*trained_on, *model, "encoding", *dict.fromkeys(key for row in rows for key, _ in row.cell.swept)]


def grouped(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Rows that differ by their encoding alone, under what tells them from the other groups: ``""`` if there is one."""
    groups: dict[str, list[Row]] = {}
    told = [name for name in labels(rows) if name != "encoding"]
    for row in rows:
        words = (f"{name} {row.label(name)}".removeprefix("model ").removeprefix("train.") for name in told)
        groups.setdefault(", ".join(words), []).append(row)
    return groups


def shared(rows: Sequence[Row]) -> str:
    """What all rows have in common."""
    models, data = {row.cell.model for row in rows}, {row.cell.data for row in rows}
    said = [*models] if len(models) == 1 else []
    said += [f"trained on {', '.join(data)}"] if len(data) == 1 else []
    return f"All rows: {', '.join(said)}." if said else ""


def compared(table: Table, rows: Sequence[Row]) -> str:
    """What the marks of a table mean, if it has any."""
    if not table.against or seeds_of(rows) < 2:
        return ""
    return (
        f" ▲ ▼: higher or lower than with {table.against}, beyond noise: the 95 % interval of the difference, "
        "seed by seed, leaves out 0. Of twenty such comparisons one is marked by chance."
    )


def summarise(folder: Folder, table: Table) -> list[Row]:
    """The rows of a table, as far as they are measured."""
    groups: dict[tuple[object, ...], list[Cell]] = {}
    for cell in folder.experiment.cells:
        if table.shows(cell):
            groups.setdefault(cell.row, []).append(cell)
    rows = []
    for cells in groups.values():
        scores = {cell.seed: run.scores for cell in cells if (run := folder.run_of(cell)).trained}
        figures = (_figure(folder.experiment, cells[0], scores, column) for column in table.columns)
        rows.append(Row(cells[0], tuple(figures)))
    return [_compared(row, rows, table) for row in rows] if table.against else rows


def _compared(row: Row, rows: Sequence[Row], table: Table) -> Row:
    """A row with its differences from the one that has another encoding and is alike otherwise."""

    def rest(cell: Cell) -> tuple[object, ...]:
        return cell.data, cell.model, cell.swept

    base = next((r for r in rows if r.cell.encoding == table.against and rest(r.cell) == rest(row.cell)), row)
    if base is row:
        return row
    figures = []
    for column, ours, theirs in zip(table.columns, row.figures, base.figures, strict=True):
        times = ours.mean / theirs.mean if column.ratio and ours.values and theirs.values and theirs.mean else None
        figures.append(replace(ours, difference=paired_difference(ours.by_seed, theirs.by_seed), times=times))
    return replace(row, figures=tuple(figures))


def measured(folder: Folder, evaluations: Iterable[str] | None = None) -> Table:
    """A table of everything that some evaluations gave; without a choice, of what no other table shows."""
    told = {(column.evaluation, column.metric) for table in folder.experiment.tables for column in table.columns}
    found: dict[tuple[str, str], None] = {}
    for _, run in folder.runs:
        for evaluation, numbers in run.scores.items():
            if len(numbers) <= MANY and (evaluations is None or evaluation in evaluations):
                found |= {(evaluation, metric): None for metric in numbers}
    shown = [pair for pair in found if evaluations is not None or pair not in told]
    columns = tuple(
        Column(f"{evaluation}: {metric}", evaluation, metric, percent=False) for evaluation, metric in shown
    )
    return Table("Also measured", columns, note="As in results.csv: shares are from 0 to 1.")


def complete(folder: Folder, table: Table) -> bool:
    """Whether every cell that a table shows has been measured."""
    return all(folder.finished(cell) for cell in folder.experiment.cells if table.shows(cell))


def _figure(experiment: Experiment, cell: Cell, scores: Mapping[int, Scores], column: Column) -> Figure:
    """The number of a column for the cells like this one, from their scores by seed; what is not finite is missing."""
    found = {seed: score.get(column.evaluation, {}).get(column.metric, math.nan) for seed, score in scores.items()}
    wanted = (cell.data, cell.model, cell.encoding, column.evaluation, column.metric)
    references = (
        r.value for r in experiment.references if (r.data, r.model, r.encoding, r.evaluation, r.metric) == wanted
    )
    values = {seed: value for seed, value in found.items() if math.isfinite(value)}
    return Figure(values, next(references, None), column.percent)

"""The result tables of an experiment: their columns and rows, and published numbers to compare with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from vitpos.lab.cells import Cell


@dataclass(frozen=True)
class Column:
    """A column of a result table: one metric of one evaluation.

    Args:
        label: heading of the column.
        evaluation: the evaluation with its options, such as ``jigsaw(per='image')``.
        metric: name of the number, curve or array in the result of the evaluation.
        percent: whether the values are fractions, to be shown in percent.
        better: whether higher or lower values are better; empty if neither.
        show_ratio: whether the ratio to the row of the table's baseline encoding is shown too.
        x: the x value, if ``metric`` is a curve: the column shows the curve's value there.
        at: the index, if ``metric`` is an array: the column shows that entry, such as ``[6, 9]`` of a confusion matrix.
    """

    label: str
    evaluation: str
    metric: str = "accuracy"
    percent: bool = True
    better: Literal["", "higher", "lower"] = ""  # which direction is better, if one is
    show_ratio: bool = False  # whether the ratio to the baseline row is shown too
    x: float | None = None
    at: tuple[int, ...] | None = None

    @property
    def name(self) -> str:
        """The metric, with x value or index if it has one: ``accuracy``, ``accuracy at 0.5``, ``confusion[6, 9]``."""
        if self.at is not None:
            return f"{self.metric}[{', '.join(map(str, self.at))}]"
        return self.metric if self.x is None else f"{self.metric} at {self.x:g}"


@dataclass(frozen=True)
class Table:
    """A result table of an experiment, averaged over seeds.

    Its rows are the trainings whose data, model and encoding are in the tuples ``data``, ``model`` and ``encoding``; an
    empty tuple selects all. ``baseline`` is the encoding with which the rows are compared. ``bar_chart``, ``heatmap`` and
    ``scatter`` are figures that the report draws of the table.
    """

    title: str
    columns: tuple[Column, ...]
    data: tuple[str, ...] = ()
    model: tuple[str, ...] = ()
    encoding: tuple[str, ...] = ()
    note: str = ""
    bar_chart: bool = False  # whether its percentages are drawn in the bar chart
    heatmap: bool = False  # whether it is also drawn as a heat map
    scatter: bool = False  # whether its first two columns are also drawn as a scatter plot
    baseline: str = ""  # baseline encoding that every row is compared with, by paired differences over seeds

    def shows(self, cell: Cell) -> bool:
        """Whether a cell (one training) is in one of the rows of the table."""
        filters = ((self.data, cell.data), (self.model, cell.model), (self.encoding, cell.encoding))
        return all(not wanted or value in wanted for wanted, value in filters)


@dataclass(frozen=True)
class PublishedNumber:
    """A number from a paper, which tables show below the measured number with the same data, model, encoding and metric."""

    data: str
    model: str
    encoding: str
    evaluation: str
    value: float
    metric: str = "accuracy"
    x: float | None = None

    @property
    def key(self) -> tuple[object, ...]:
        """All fields except ``value``; a measured number with the same key is compared with the published one."""
        return self.data, self.model, self.encoding, self.evaluation, self.metric, self.x

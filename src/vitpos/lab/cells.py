"""The parts of an experiment: cells to run, tables to print, published numbers to compare with."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Literal

from vitpos.training.recipe import Recipe


@dataclass(frozen=True)
class Cell:
    """One model to train, on one data set with one seed, and its evaluations."""

    data: str
    model: str
    encoding: str
    seed: int
    train: Recipe
    evaluations: tuple[str, ...]
    varied: tuple[tuple[str, Any], ...] = ()  # ``train`` values that differ between cells equal in the above

    @cached_property
    def folder_name(self) -> str:
        """Name of its folder: readable, with a hash of everything that changes the weights."""
        identity = asdict(self)
        del identity["evaluations"], identity["varied"]
        digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
        words = re.sub(r"[^A-Za-z0-9.]+", "-", f"{self.data} {self.model} {self.encoding}")
        return f"{words[:80].strip('-')}-seed{self.seed}-{digest[:8]}"

    @property
    def label(self) -> str:
        """Its encoding, followed by the ``train`` values in ``varied``."""
        return self.encoding + "".join(f", {key}={value if value != '' else 'none'}" for key, value in self.varied)

    def train_value(self, name: str) -> Any:
        """The value of a training option, such as ``train.lr``."""
        return getattr(self.train, name.removeprefix("train."))

    @property
    def group(self) -> tuple[Any, ...]:
        """Key shared by the cells that differ only in their seed; tables average over the seeds of a group."""
        return (self.data, self.model, self.encoding, *(value for _, value in self.varied))


@dataclass(frozen=True)
class Column:
    """A column of a table: a metric of an evaluation.

    Args:
        percent: whether the values are fractions, to be shown in percent.
        x: the point of the curve named ``metric``, in place of a number.
        at: the entry of the array named ``metric``, such as ``[6, 9]`` of a confusion matrix.
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
        """The metric with its point or entry: ``accuracy``, ``accuracy at 0.5``, ``confusion[6, 9]``."""
        if self.at is not None:
            return f"{self.metric}[{', '.join(map(str, self.at))}]"
        return self.metric if self.x is None else f"{self.metric} at {self.x:g}"


@dataclass(frozen=True)
class Table:
    """A table to print; its rows are the cells with the given data, models and encodings (empty: all of them)."""

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
        """Whether a cell belongs to one of the rows."""
        filters = ((self.data, cell.data), (self.model, cell.model), (self.encoding, cell.encoding))
        return all(not wanted or value in wanted for wanted, value in filters)


@dataclass(frozen=True)
class PublishedNumber:
    """A published number that tables show below the measured one."""

    data: str
    model: str
    encoding: str
    evaluation: str
    value: float
    metric: str = "accuracy"
    x: float | None = None

    @property
    def key(self) -> tuple[object, ...]:
        """Everything but the value: what a measured number must have in common with it."""
        return self.data, self.model, self.encoding, self.evaluation, self.metric, self.x

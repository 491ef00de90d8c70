"""The parts of an experiment: cells (trainings), tables to print, published numbers to compare with."""

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
    """One training of an experiment: a model with an encoding on one data set with one seed, and its evaluations.

    ``data``, ``model``, ``encoding`` and ``evaluations`` are specs: texts such as ``vit(depth=6)``.
    """

    data: str
    model: str
    encoding: str
    seed: int
    train: Recipe
    evaluations: tuple[str, ...]
    varied: tuple[tuple[str, Any], ...] = ()  # ``train`` values that differ between cells equal in the above

    @cached_property
    def folder_name(self) -> str:
        """Name of the cell's folder: data, model, encoding and seed, with a hash of everything that changes the weights."""
        identity = asdict(self)
        del identity["evaluations"], identity["varied"]
        digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
        words = re.sub(r"[^A-Za-z0-9.]+", "-", f"{self.data} {self.model} {self.encoding}")
        return f"{words[:80].strip('-')}-seed{self.seed}-{digest[:8]}"

    @property
    def label(self) -> str:
        """The encoding, followed by the training options that vary in the experiment, such as ``rope, train.lr=0.1``."""
        return self.encoding + "".join(f", {key}={value if value != '' else 'none'}" for key, value in self.varied)

    def train_value(self, name: str) -> Any:
        """Returns the value of a training option given by name, such as ``train.lr``."""
        return getattr(self.train, name.removeprefix("train."))

    @property
    def group(self) -> tuple[Any, ...]:
        """Key that is equal for cells that differ only in their seed; tables average over the seeds of such a group."""
        return (self.data, self.model, self.encoding, *(value for _, value in self.varied))


@dataclass(frozen=True)
class Column:
    """A column of a result table: one metric of one evaluation.

    Args:
        label: heading of the column.
        evaluation: the evaluation with its options, such as ``jigsaw(per='image')``.
        percent: whether the values are fractions, to be shown in percent.
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

    ``data``, ``model`` and ``encoding`` select which trainings are its rows; empty: all of them.
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

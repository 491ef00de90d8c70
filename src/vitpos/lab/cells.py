"""What an experiment is made of: cells to run, tables to print, published numbers to compare with."""

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
    """One model to train and its evaluations."""

    data: str
    model: str
    encoding: str
    seed: int
    train: Recipe
    evaluate: tuple[str, ...]
    varied: tuple[tuple[str, Any], ...] = ()  # the ``train`` values that differ among cells of the same three specs

    @cached_property
    def folder_name(self) -> str:
        """A readable name that differs for everything that changes the weights."""
        identity = asdict(self)
        del identity["evaluate"], identity["varied"]
        digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
        words = re.sub(r"[^A-Za-z0-9.]+", "-", f"{self.data} {self.model} {self.encoding}")
        return f"{words[:80].strip('-')}-seed{self.seed}-{digest[:8]}"

    @property
    def label(self) -> str:
        """Its encoding, and the ``train`` values that differ among the cells of its experiment."""
        return self.encoding + "".join(f", {key}={value if value != '' else 'none'}" for key, value in self.varied)

    @property
    def group(self) -> tuple[Any, ...]:
        """What cells that differ by their seed alone have in common; seeds are averaged within a group."""
        return (self.data, self.model, self.encoding, *(value for _, value in self.varied))


@dataclass(frozen=True)
class Column:
    """One number of a table, shown in percent or as it is.

    It is a metric of an evaluation; with ``x`` the point of the curve of that name; with ``at`` an entry of the array of
    that name, such as ``at = [6, 9]`` of a confusion matrix.
    """

    label: str
    evaluation: str
    metric: str = "accuracy"
    percent: bool = True
    better: Literal["", "more", "less"] = ""  # which direction is better, if one is
    ratio: bool = False  # whether it is also shown as a multiple of the row that the table compares with
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
    """A table to print: rows are the cells of these data, models and encodings (none named: all), columns their numbers."""

    title: str
    columns: tuple[Column, ...]
    data: tuple[str, ...] = ()
    model: tuple[str, ...] = ()
    encoding: tuple[str, ...] = ()
    note: str = ""
    chart: bool = False  # whether its percentages are drawn in the chart of protocols
    heat: bool = False  # whether it is also drawn as a map of colours
    plane: bool = False  # whether its first two columns are also drawn against each other, a point for each row
    against: str = ""  # an encoding that every row is compared with, seed by seed

    def shows(self, cell: Cell) -> bool:
        """Whether a cell is in one of the rows."""
        asked = ((self.data, cell.data), (self.model, cell.model), (self.encoding, cell.encoding))
        return all(not wanted or value in wanted for wanted, value in asked)


@dataclass(frozen=True)
class Reference:
    """A published number that is shown beside ours."""

    data: str
    model: str
    encoding: str
    evaluation: str
    value: float
    metric: str = "accuracy"
    x: float | None = None

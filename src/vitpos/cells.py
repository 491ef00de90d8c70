"""What an experiment is made of: cells to run, tables to print, figures from elsewhere to stand beside ours."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any, Literal

from vitpos.training.recipe import Recipe

ALWAYS = (
    "epochs",
    "batch_size",
    "lr",
    "warmup_fraction",
    "weight_decay",
    "label_smoothing",
    "grad_clip",
)  # what every key has told of a recipe


@dataclass(frozen=True)
class Cell:
    """One model to train and what to ask of it."""

    data: str
    model: str
    encoding: str
    seed: int
    train: Recipe
    evaluate: tuple[str, ...]
    swept: tuple[tuple[str, Any], ...] = ()  # the ``train`` values that tell it from cells of the same three specs

    @cached_property
    def key(self) -> str:
        """A folder name that tells a reader what it is, and tells apart whatever changes the weights."""
        identity = asdict(self)
        del identity["evaluate"], identity["swept"]
        for f in fields(Recipe):
            if f.name not in ALWAYS and identity["train"][f.name] == f.default:
                del identity["train"][f.name]  # as before there was such a field, so that older runs are found
        digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
        words = re.sub(r"[^A-Za-z0-9.]+", "-", f"{self.data} {self.model} {self.encoding}")
        return f"{words[:80].strip('-')}-seed{self.seed}-{digest[:8]}"

    @property
    def told(self) -> str:
        """Its encoding, and the ``train`` values that tell it from others: what stands for it among them."""
        return self.encoding + "".join(f", {key}={value if value != '' else 'none'}" for key, value in self.swept)

    @property
    def row(self) -> tuple[Any, ...]:
        """What its seeds are averaged under."""
        return (self.data, self.model, self.encoding, *(value for _, value in self.swept))


@dataclass(frozen=True)
class Column:
    """One number of a table: a metric of an evaluation, shown in percent or as it is."""

    label: str
    evaluation: str
    metric: str = "accuracy"
    percent: bool = True
    better: Literal["", "more", "less"] = ""  # which end is to be wished for, if one is
    ratio: bool = False  # whether it is also told as a multiple of the row that the table compares with


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
    """A figure from elsewhere to stand beside one of ours."""

    data: str
    model: str
    encoding: str
    evaluation: str
    value: float
    metric: str = "accuracy"

"""The class `Cell`: one training of an experiment, i.e. one model with one seed."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from vitpos.training.recipe import LATER_OPTIONS, Recipe


@dataclass(frozen=True)
class Cell:
    """One training of an experiment, given by data, model, encoding, seed and recipe, and the evaluations of its model.

    ``data``, ``model``, ``encoding`` and ``evaluations`` are specs: texts such as ``vit(depth=6)``. The recipe, ``train``,
    holds the training options, such as the learning rate.
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
        """Name of the cell's folder: encoding, model, data and seed, with a hash of everything that changes the weights."""
        identity = asdict(self)
        del identity["evaluations"], identity["varied"]
        for name in LATER_OPTIONS:
            if identity["train"][name] == getattr(Recipe, name):  # its default
                del identity["train"][name]
        digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
        words = re.sub(r"[^A-Za-z0-9.]+", "-", f"{self.encoding} {self.model} {self.data}")
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
        """Tuple that is equal for trainings that differ only in their seed; tables average over such trainings.

        It has data, model, encoding and the values of those training options that vary within the experiment.
        """
        return (self.data, self.model, self.encoding, *(value for _, value in self.varied))

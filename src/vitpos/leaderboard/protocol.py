"""The protocol of the leaderboard: what every entry is trained on and measured by, read from one frozen TOML file."""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from vitpos.errors import InputError
from vitpos.lab.experiment import Experiment
from vitpos.registry import suggest

FOLDER = Path(__file__).parent
DEFAULT = "vitpos-1"


@dataclass(frozen=True)
class Measure:
    """A column of the leaderboard: a metric of an evaluation.

    Args:
        label: Heading of the column.
        evaluation: The evaluation with its options, such as ``corruption(max_images=1000)``.
        metric: Name of the number in the result of the evaluation.
        better: Whether higher or lower values are better; empty if neither.
        unit: ``fraction`` (from 0 to 1, shown in percent), ``count`` (an integer) or ``ratio`` (a value divided by that of
            the model without encoding).
        optional: Whether an entry may give a reason in place of the number.
        data: Data set that the measured model was trained on, if the experiment trains on several.
    """

    label: str
    evaluation: str
    metric: str = "accuracy"
    better: Literal["", "higher", "lower"] = ""
    unit: Literal["fraction", "count", "ratio"] = "fraction"
    optional: bool = False
    data: str = ""

    @property
    def percent(self) -> bool:
        """Whether the numbers are shown in percent."""
        return self.unit == "fraction"

    @property
    def title(self) -> str:
        """The label without its unit, for running text."""
        return self.label.removesuffix(", %")


@dataclass(frozen=True)
class Protocol:
    """A leaderboard protocol: the experiment that every entry runs, learning rates, seeds, baselines and columns.

    ``sha256`` is the hash of its TOML file. ``notes`` are what was found out about its columns after it was frozen; they
    are read from ``NAME.notes.md`` beside it, one per line.
    """

    name: str
    question: str
    setup: str  # model, data and training in one phrase, for the page
    seeds: tuple[int, ...]
    baselines: tuple[str, ...]
    learning_rates: Mapping[str, float]  # by family
    quick: Mapping[str, Any]  # what a shortened run changes: seeds, settings, and a view of the data (a subset)
    experiment: Mapping[str, Any]
    columns: Mapping[str, Measure]
    sha256: str
    training_losses: Mapping[str, float] = field(default_factory=dict)  # of a short training, by baseline
    needs_data: bool = False  # whether users give the data set, as for ImageNet, which cannot be downloaded
    notes: tuple[str, ...] = ()

    @classmethod
    def load(cls, name: str = DEFAULT) -> Protocol:
        """Reads a protocol of the package, such as ``vitpos-1``, from its TOML file and returns it."""
        if name not in protocols():
            raise InputError(f"no protocol {name!r}; {suggest(name, protocols())}")
        content = (FOLDER / f"{name}.toml").read_bytes()
        document = tomllib.loads(content.decode())
        document |= {key: tuple(document[key]) for key in ("seeds", "baselines")}
        document["columns"] = {key: Measure(**column) for key, column in document["columns"].items()}
        notes = FOLDER / f"{name}.notes.md"
        lines = notes.read_text(encoding="utf-8").splitlines() if notes.exists() else []
        document["notes"] = tuple(line.removeprefix("- ") for line in lines if line.startswith("- "))
        return cls(**document, sha256=hashlib.sha256(content).hexdigest())

    def experiment_for(
        self,
        encoding: Any,
        family: str,
        *,
        seeds: Sequence[int] | None = None,
        quick: bool = False,
        data: str | None = None,
        plugins: Sequence[str] = (),
    ) -> Experiment:
        """Returns the experiment that trains and measures one encoding, with the learning rate of its family.

        Args:
            encoding: A spec such as ``rope(base=10)``, or a class.
            family: Family of the encoding (added, bias, rotary or context), as returned by `family_of`.
            seeds: Seeds; those of the protocol by default.
            quick: Shortens the training.
            data: Spec of the data set, for protocols that need one.
            plugins: Python files or modules that register encodings.
        """
        changes = dict(self.quick) if quick else {}
        quick_seeds, view = changes.pop("seeds", None), changes.pop("view", None)
        settings = {"encoding": encoding, "train.lr": self.learning_rates[family], **changes}
        if data and not self.needs_data:
            raise InputError(f"protocol {self.name!r} has fixed data, not {data!r}; leave out --data")
        if data or view:
            settings["data"] = " + ".join(filter(None, (data or self.experiment["data"], view)))
        document = {"name": self.name, "question": self.question, **self.experiment}
        return Experiment.load(document, settings, list(seeds or quick_seeds or self.seeds), plugins)


def protocols() -> list[str]:
    """Returns the names of the protocols in the package, such as ``vitpos-1``."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def family_of(hooks: Sequence[str] | frozenset[str], traits: Sequence[str]) -> str:
    """Returns the family of an encoding, which decides its learning rate: context, rotary, bias or added.

    Context: the logit of two tokens depends on other tokens too, as in SaPE2. Rotary: it rotates q and k. Bias: it changes
    logits, attention weights or values. Added: everything else. The first of them that applies, in this order, is returned.

    Args:
        hooks: Names of the methods by which the encoding acts in the model, such as ``rotate``.
        traits: Declared properties of the encoding, such as ``context_dependent``.
    """
    if "context_dependent" in traits:
        return "context"
    if "rotate" in hooks:
        return "rotary"
    return "bias" if set(hooks) & {"bias", "token_bias", "mix_weights", "added_values", "fused_logits"} else "added"

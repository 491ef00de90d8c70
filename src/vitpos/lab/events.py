"""What happens during a run, as events that an observer receives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vitpos.lab.cells import Cell

if TYPE_CHECKING:
    from vitpos.lab.results import Results


@dataclass(frozen=True)
class Download:
    """``done`` of ``total`` bytes of a file of a data set have arrived; ``total`` is 0 where it is unknown."""

    name: str
    done: int
    total: int


@dataclass(frozen=True)
class DryRun:
    """``done`` of ``total`` configurations have been tried on two images."""

    done: int
    total: int


@dataclass(frozen=True)
class RunStart:
    """The cells of an experiment begin; ``results`` includes a cell before its CellDone is sent."""

    results: Results


@dataclass(frozen=True)
class TrainStart:
    """A cell begins to train on ``images`` in all epochs together; ``done`` of them before it was interrupted."""

    cell: Cell
    images: int
    done: int


@dataclass(frozen=True)
class TrainProgress:
    """A cell has been trained on ``images`` more."""

    cell: Cell
    images: int


@dataclass(frozen=True)
class EvalStart:
    """An evaluation of a trained cell begins; ``done`` of its ``total`` evaluations are finished."""

    cell: Cell
    spec: str
    done: int
    total: int


@dataclass(frozen=True)
class CellDone:
    """A cell is trained and evaluated."""

    cell: Cell


@dataclass(frozen=True)
class CellFailed:
    """A cell could not be finished; the other cells continue. ``error`` is one line."""

    cell: Cell
    error: str


@dataclass(frozen=True)
class AttackProgress:
    """``fraction`` of the current attack on the current model is done, 0 to 1."""

    fraction: float


Event = Download | DryRun | RunStart | TrainStart | TrainProgress | EvalStart | CellDone | CellFailed | AttackProgress


class Observer:
    """Receives the events of a run; this one ignores them."""

    def on_event(self, event: Event) -> None:
        """Called in the main process, in the order in which events happen."""

"""The events of a run, and the observer that receives them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vitpos.lab.cells import Cell

if TYPE_CHECKING:
    from vitpos.lab.results import Results


@dataclass(frozen=True)
class Download:
    """``done`` of ``total`` bytes of a file of a data set are downloaded; ``total`` is 0 if it is unknown."""

    name: str
    done: int
    total: int


@dataclass(frozen=True)
class DryRun:
    """``done`` of ``total`` configurations of the dry run are done."""

    done: int
    total: int


@dataclass(frozen=True)
class RunStart:
    """The first cell is about to start; ``results`` is updated with each cell before its CellDone is sent."""

    results: Results


@dataclass(frozen=True)
class TrainStart:
    """Training of a cell starts: ``images`` in all epochs together, ``done`` of them in an earlier, interrupted run."""

    cell: Cell
    images: int
    done: int


@dataclass(frozen=True)
class TrainProgress:
    """Sent after a batch, or several: a cell was trained on ``images`` more images."""

    cell: Cell
    images: int


@dataclass(frozen=True)
class EvalStart:
    """An evaluation of a trained cell starts; ``done`` of its ``total`` evaluations are finished."""

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


Event = Download | DryRun | RunStart | TrainStart | TrainProgress | EvalStart | CellDone | CellFailed


class Observer:
    """Base class of objects that receive the events of a run; ignores them."""

    def on_event(self, event: Event) -> None:
        """Called in the main process for each event, in order."""

"""The events that a run sends while it works, such as TrainProgress, and the base class of objects that receive them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vitpos.lab.cells import Cell

if TYPE_CHECKING:
    from vitpos.lab.results import Results


@dataclass(frozen=True)
class Download:
    """Sent while a data set is downloaded: ``done`` of ``total`` bytes of file ``name``; ``total`` is 0 if unknown."""

    name: str
    done: int
    total: int


@dataclass(frozen=True)
class DryRun:
    """Sent during the dry run, which runs each configuration on two images: ``done`` of ``total`` are finished."""

    done: int
    total: int


@dataclass(frozen=True)
class RunStart:
    """Sent before the first training starts.

    ``results`` are the results of the experiment; they are updated before each CellDone event is sent.
    """

    results: Results


@dataclass(frozen=True)
class TrainStart:
    """Sent when a training starts.

    ``images`` is the number of images that it processes in all epochs together; ``done`` of them were processed in an
    earlier, interrupted run.
    """

    cell: Cell
    images: int
    done: int


@dataclass(frozen=True)
class TrainProgress:
    """Sent after one or several batches: the training of ``cell`` has processed ``images`` more images."""

    cell: Cell
    images: int


@dataclass(frozen=True)
class EvalStart:
    """Sent when the evaluation ``spec`` of a trained model starts; ``done`` of its ``total`` evaluations are finished."""

    cell: Cell
    spec: str
    done: int
    total: int


@dataclass(frozen=True)
class EvalProgress:
    """Sent while a long evaluation, such as an attack, is running: the ``fraction`` of it that is done, 0 to 1."""

    cell: Cell
    spec: str
    fraction: float


@dataclass(frozen=True)
class CellDone:
    """Sent when a cell is finished: one model is trained and all its evaluations are stored."""

    cell: Cell


@dataclass(frozen=True)
class CellFailed:
    """Sent when a training or its evaluations stop with an ``error``, given in one line; the other trainings continue."""

    cell: Cell
    error: str


Event = Download | DryRun | RunStart | TrainStart | TrainProgress | EvalStart | EvalProgress | CellDone | CellFailed


class Observer:
    """Base class of objects that receive the events of a run; it ignores all events."""

    def on_event(self, event: Event) -> None:
        """Called in the main process for each event of a run, in order."""

"""Runs cells (trainings) in several processes of this machine, which divide the cores among them.

Small models do not use several cores well: two processes with one thread each finish an experiment sooner than one
process with two threads.
"""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import torch

from vitpos.errors import InputError, Notice, RunError
from vitpos.lab.cell_folder import CellFolder
from vitpos.lab.cells import Cell
from vitpos.lab.device import chosen_device
from vitpos.lab.events import CellDone, CellFailed, EvalProgress, EvalStart, Event, Observer, TrainProgress

NESTED = 64  # exit code of a worker process whose script calls ``vitpos.run`` again
Job = Callable[[Cell, CellFolder, Observer], None]  # importable by name: worker processes receive it by pickle


class Executor(Protocol):
    """Interface of objects that train and evaluate the cells (trainings) of an experiment, for example on a cluster.

    An instance is given to ``vitpos.run`` as ``executor``.
    """

    def run(self, job: Job, cells: Sequence[Cell], folder: Path, observer: Observer) -> None:
        """Runs the job on all cells and sends CellDone or CellFailed for each; a failure does not stop other cells.

        Args:
            job: called as ``job(cell, cell_folder, observer)``; trains and evaluates one cell.
            cells: the trainings of the experiment that are not finished.
            folder: folder of the experiment.
            observer: receives the events of all cells.
        """


class LocalExecutor:
    """Runs the cells (trainings) of an experiment on this machine, in this process or in several.

    Each process uses as many threads as there are cores per process.

    Args:
        workers: Number of processes; by default one per core, or a single one if there is a GPU.
        max_workers: Upper limit of ``workers``: the number of all trainings of the experiment. Finished trainings count
            too, so that a continued run has the same number of threads, and so the same rounding, as an unbroken one.
    """

    def __init__(self, workers: int | None = None, *, max_workers: int = sys.maxsize):
        if workers is not None and (not isinstance(workers, int) or workers < 1):
            raise InputError(f"workers takes a whole number from 1, not {workers!r}; leave it out for one per core")
        wanted = workers or (num_cores() if chosen_device().type == "cpu" else 1)
        self.workers = max(1, min(wanted, max_workers))

    def run(self, job: Job, cells: Sequence[Cell], folder: Path, observer: Observer) -> None:
        """Calls ``job(cell, cell_folder, observer)`` for every cell (training); forwards the events of all processes.

        Args:
            job: trains and evaluates one cell.
            folder: folder of the experiment.
            observer: receives the events.
        """
        if self.workers > 1 and cells:
            with _noticing_ctrl_c() as pressed:
                _run_in_pool(job, cells, folder, self.workers, observer, pressed)
            return
        for cell in cells:
            _run_one(job, cell, folder, observer)


def refuse_to_nest() -> None:
    """Exits with the code ``NESTED`` (64) if this process is a worker that is still importing the user's script.

    Such a script calls ``vitpos.run`` at its top level, and each worker would start workers of its own. The main process
    sees the exit code and raises an InputError.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        sys.exit(NESTED)


def num_cores() -> int:
    """Returns the number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def single_threaded() -> Iterator[None]:
    """Context manager that makes torch use a single thread during the ``with`` block."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _run_one(job: Job, cell: Cell, folder: Path, observer: Observer) -> None:
    """Runs the job on one cell (training) and sends CellDone or CellFailed; stores the traceback of an unexpected error.

    Args:
        job: called as ``job(cell, cell_folder, observer)``; trains and evaluates the cell.
        folder: folder of the experiment.
        observer: receives the events.
    """
    cell_folder = CellFolder(folder / "cells" / cell.folder_name)
    try:
        cell_folder.clear_traceback()
        job(cell, cell_folder, observer)
    except (InputError, RunError) as error:
        observer.on_event(CellFailed(cell, str(error)))
    except (Exception, SystemExit) as error:  # a plug-in may call sys.exit
        observer.on_event(CellFailed(cell, _unexpected(error, cell_folder)))
    else:
        observer.on_event(CellDone(cell))


def _unexpected(error: BaseException, folder: CellFolder) -> str:
    """Stores the traceback of an unexpected error in the folder of its training and returns a one-line message."""
    summary = traceback.format_exception_only(error)[-1].strip().splitlines()[0]
    try:
        where = folder.save_traceback("".join(traceback.format_exception(error)))
    except RunError as full:
        return f"unexpected {summary} (no traceback: {full})"
    return f"unexpected {summary}; the traceback is in {where}"


@contextmanager
def _noticing_ctrl_c() -> Iterator[list[int]]:
    """Context manager that yields a list to which Ctrl-C appends the signal number; Ctrl-C still raises KeyboardInterrupt.

    The list is needed because Python may drop a KeyboardInterrupt that is raised in a finalizer.
    """
    pressed: list[int] = []

    def note(number: int, frame: object) -> None:
        pressed.append(number)
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield pressed
        return
    before = signal.signal(signal.SIGINT, note)
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, before)


def _run_in_pool(
    job: Job, cells: Sequence[Cell], folder: Path, workers: int, observer: Observer, pressed: list[int]
) -> None:
    """Runs the job on every cell (training) in several processes and forwards their events to the observer.

    Args:
        job: called as ``job(cell, cell_folder, observer)``; trains and evaluates one cell.
        folder: folder of the experiment.
        workers: number of processes among which the cores are divided; no more are started than there are cells.
        pressed: list that is not empty after Ctrl-C.
    """
    context = multiprocessing.get_context("spawn")
    tasks: multiprocessing.Queue[Cell | None] = context.Queue()
    events: multiprocessing.Queue[Event] = context.Queue()
    tasks.cancel_join_thread()  # so that stopping does not wait for the queue to drain
    started = min(workers, len(cells))
    for task in (*cells, *[None] * started):
        tasks.put(task)
    threads = int(os.environ.get("VITPOS_THREADS") or max(1, num_cores() // workers))
    arguments = (job, tasks, events, folder, threads)
    processes = [context.Process(target=_work, args=arguments, daemon=True) for _ in range(started)]
    for process in processes:
        process.start()
    try:
        left = len(cells)
        while left:
            if pressed:
                raise KeyboardInterrupt
            alive = any(
                process.is_alive() for process in processes
            )  # before reading: it sends its events before it ends
            try:
                event = events.get(timeout=0.5)
            except queue.Empty:
                codes = [process.exitcode for process in processes if process.exitcode]
                if NESTED in codes:
                    raise InputError(
                        "each of several processes imports this script, which must call vitpos.run under "
                        "if __name__ == '__main__': only; put the call there, or give workers=1"
                    ) from None
                if codes:
                    raise RunError(
                        f"a worker process died (exit code {codes[0]}); run it again to continue from the finished cells"
                    ) from None
                if not alive:
                    raise RunError(
                        f"all worker processes ended with exit code 0, and cells are left ({left}); "
                        "call sys.exit under if __name__ == '__main__': only, and never in a plug-in"
                    ) from None
                continue
            left -= isinstance(event, CellDone | CellFailed)
            observer.on_event(event)
    finally:
        for process in processes:
            process.terminate()
            process.join()


def _work(
    job: Job,
    tasks: multiprocessing.Queue[Cell | None],
    events: multiprocessing.Queue[Event],
    folder: Path,
    threads: int,
) -> None:
    """Main function of a worker process: runs the job on each cell (training) from a queue until it receives None.

    Args:
        job: called as ``job(cell, cell_folder, observer)``; trains and evaluates one cell.
        tasks: queue of cells, with a None for each worker at its end.
        events: queue for the events of the cells, which the main process reads.
        folder: folder of the experiment.
        threads: number of threads of torch.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process receives it and stops its workers
    warnings.simplefilter("ignore", Notice)  # the dry run in the main process has shown them
    torch.set_num_threads(threads)
    observer = _Forwarder(events)
    while cell := tasks.get():
        _run_one(job, cell, folder, observer)


class _Forwarder(Observer):
    """Observer that forwards the events of a worker process to the main process; progress at most five times a second."""

    def __init__(self, events: multiprocessing.Queue[Event]):
        self.events = events
        self.parent = multiprocessing.parent_process()
        self.images, self.last = 0, time.monotonic()

    def on_event(self, event: Event) -> None:
        """Puts the event into the queue of the main process; exits if the main process has died."""
        if self.parent and not self.parent.is_alive():
            os._exit(1)
        if isinstance(event, TrainProgress | EvalProgress):
            self.images += event.images if isinstance(event, TrainProgress) else 0
            if time.monotonic() - self.last < 0.2:
                return
            self.last = time.monotonic()
        if self.images and isinstance(event, TrainProgress | EvalStart | CellDone | CellFailed):
            self.events.put(TrainProgress(event.cell, self.images))
            self.images = 0
        if not isinstance(event, TrainProgress):
            self.events.put(event)

"""Cells spread over processes of this machine, each with its share of the cores.

A small model cannot keep two cores busy: two processes of one thread finish an experiment sooner than one of two.
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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from vitpos.errors import UserError, WorkError
from vitpos.lab.cells import Cell

Event = tuple[str, Cell, tuple[Any, ...]]  # name of what happened, to which cell, and what there is to say of it
Job = Callable[[Cell, Path, Callable[[Event], None]], None]


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def alone() -> Iterator[None]:
    """While this lasts, this process computes on one core."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def spread(job: Job, cells: Sequence[Cell], folder: Path, workers: int, hear: Callable[[Event], None]) -> None:
    """Runs ``job`` on every cell, in this process or in several, and lets ``hear`` know of everything that happens."""
    if workers == 1:
        for cell in cells:
            _attempt(job, cell, folder, hear)
        return
    with _noticing_ctrl_c() as pressed:
        _share(job, cells, folder, workers, hear, pressed)


@contextmanager
def _noticing_ctrl_c() -> Iterator[list[int]]:
    """A list that Ctrl-C is written into: the exception that it raises is lost where Python happens to be cleaning up."""
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


def _share(
    job: Job, cells: Sequence[Cell], folder: Path, workers: int, hear: Callable[[Event], None], pressed: list[int]
) -> None:
    """Runs ``job`` on every cell in several processes."""
    context = multiprocessing.get_context("spawn")
    tasks: multiprocessing.Queue[Cell | None] = context.Queue()
    events: multiprocessing.Queue[Event] = context.Queue()
    tasks.cancel_join_thread()  # whoever stops does not wait until all cells have been handed over
    for task in (*cells, *[None] * workers):
        tasks.put(task)
    arguments = (job, tasks, events, folder, max(1, cores() // workers))
    processes = [context.Process(target=_work, args=arguments, daemon=True) for _ in range(workers)]
    for process in processes:
        process.start()
    try:
        left = len(cells)
        while left:
            if pressed:
                raise KeyboardInterrupt
            try:
                event = events.get(timeout=0.5)
            except queue.Empty:
                if any(process.exitcode for process in processes):
                    raise WorkError("a worker process died; the same command goes on from what is finished") from None
                continue
            left -= event[0] in ("finish", "fail")
            hear(event)
    finally:
        for process in processes:
            process.terminate()
            process.join()


def _attempt(job: Job, cell: Cell, folder: Path, say: Callable[[Event], None]) -> None:
    try:
        job(cell, folder, say)
    except (UserError, WorkError) as error:
        say(("fail", cell, (WorkError(str(error)),)))
    else:
        say(("finish", cell, ()))


def _work(
    job: Job,
    tasks: multiprocessing.Queue[Cell | None],
    events: multiprocessing.Queue[Event],
    folder: Path,
    threads: int,
) -> None:
    """What a worker process does: one cell after the other."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears it, and ends its workers
    torch.set_num_threads(threads)
    parent, ticks, last = multiprocessing.parent_process(), 0, time.monotonic()

    def say(event: Event) -> None:
        nonlocal ticks, last
        if parent and not parent.is_alive():
            sys.exit(1)
        name, cell, about = event
        if name == "start":
            ticks = 0
        if name == "tick":  # a few times a second will do
            ticks += about[0]
            if time.monotonic() - last < 0.2:
                return
            about, ticks, last = (ticks,), 0, time.monotonic()
        events.put((name, cell, about))

    while cell := tasks.get():
        try:
            _attempt(job, cell, folder, say)
        except Exception:
            say(("fail", cell, (WorkError(f"an error of vitpos itself:\n{traceback.format_exc()}"),)))

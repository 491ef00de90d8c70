"""Cells in processes: each sends how it ended, and none stops another."""

import os
import sys

import pytest
import torch

from vitpos.errors import InputError, RunError
from vitpos.lab.cells import Cell
from vitpos.lab.events import CellDone, CellFailed, Observer, TrainProgress, TrainStart
from vitpos.lab.executor import LocalExecutor
from vitpos.training.recipe import Recipe


class Recorder(Observer):
    def __init__(self):
        self.events = []

    def on_event(self, event):
        self.events.append(event)


def cell(behavior: str, seed: int = 0) -> Cell:
    return Cell(behavior, "model", "none", seed, Recipe(), ())


def job(cell, folder, observer):
    if cell.data == "unexpected":
        raise ZeroDivisionError("two\nlines")
    if cell.data == "mistake":
        raise InputError("take another")
    if cell.data == "dies":
        os._exit(3)
    if cell.data == "ends":
        os._exit(0)
    if cell.data == "exits":
        sys.exit(0)
    observer.on_event(TrainStart(cell, 100, 0))
    for _ in range(100):
        observer.on_event(TrainProgress(cell, 1))


@pytest.mark.parametrize("workers", [1, 2])
def test_a_cell_that_fails_says_why_in_one_line_and_stops_no_other(tmp_path, workers):
    cells = [cell("unexpected"), cell("mistake"), cell("fine"), cell("fine", 1)]
    recorder = Recorder()
    LocalExecutor(workers).run(job, cells, tmp_path, recorder)
    ended = {event.cell: event for event in recorder.events if isinstance(event, CellDone | CellFailed)}
    assert [type(ended[one]) for one in cells] == [CellFailed, CellFailed, CellDone, CellDone]
    log = tmp_path / "cells" / cells[0].folder_name / "error.log"
    assert ended[cells[0]].error == f"unexpected ZeroDivisionError: two; the traceback is in {log}"
    assert "in job" in log.read_text() and ended[cells[1]].error == "take another"
    assert [path.name for path in (tmp_path / "cells").iterdir()] == [cells[0].folder_name]
    images = sum(e.images for e in recorder.events if isinstance(e, TrainProgress) and e.cell == cells[2])
    assert images == 100


def test_a_process_that_dies_ends_the_run_with_one_line(tmp_path):
    with pytest.raises(RunError, match=r"a worker process died \(exit code 3\); run it again"):
        LocalExecutor(2).run(job, [cell("dies"), cell("fine")], tmp_path, Recorder())


def test_a_process_that_ends_too_early_without_an_error_ends_the_run_with_one_line(tmp_path):
    with pytest.raises(RunError, match=r"ended with exit code 0, and cells are left \(1\); call sys\.exit under"):
        LocalExecutor(2).run(job, [cell("ends")], tmp_path, Recorder())


def test_a_job_that_calls_sys_exit_is_a_cell_that_failed(tmp_path):
    recorder = Recorder()
    LocalExecutor(1).run(job, [cell("exits"), cell("fine")], tmp_path, recorder)
    ended = [event for event in recorder.events if isinstance(event, CellDone | CellFailed)]
    assert [type(event) for event in ended] == [CellFailed, CellDone]
    assert ended[0].error.startswith("unexpected SystemExit: 0; the traceback is in")


def write_threads(cell, folder, observer):
    folder.path.mkdir(parents=True)
    (folder.path / "threads").write_text(str(torch.get_num_threads()))


def test_a_continued_run_has_the_threads_of_an_unbroken_one(tmp_path):
    cells = [cell("fine"), cell("fine", 1)]
    for name, left in (("unbroken", cells), ("continued", cells[1:])):
        LocalExecutor(2, max_workers=2).run(write_threads, left, tmp_path / name, Recorder())
    unbroken, continued = (
        (tmp_path / name / "cells" / cells[1].folder_name / "threads").read_text() for name in ("unbroken", "continued")
    )
    assert unbroken == continued

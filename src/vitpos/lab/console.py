"""Shows a run on standard error: a live bar per cell on a terminal, one line per finished cell elsewhere."""

from __future__ import annotations

import time
from typing import Self

import rich.console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Column
from rich.text import Text

from vitpos.lab.cells import Cell
from vitpos.lab.events import (
    CellDone,
    CellFailed,
    Download,
    DryRun,
    EvalStart,
    Event,
    Observer,
    TrainProgress,
    TrainStart,
)

LONG = 20  # configurations whose dry run is worth a line
errors = rich.console.Console(stderr=True, highlight=False, markup=False)


class Console(Observer):
    """Shows downloads, the dry run, trainings and evaluations; use it as a context manager."""

    def __init__(self) -> None:
        self.bars = Progress(
            TextColumn(
                "{task.description}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1)
            ),
            BarColumn(20),
            _Amount(),
            _Speed(),
            TimeRemainingColumn(),
            console=errors,
            transient=True,
            expand=True,
            disable=not errors.is_terminal,
        )
        self.tasks: dict[str, TaskID] = {}  # by the name of a cell's folder, or of what is downloaded
        self.began: dict[str, float] = {}  # when a cell began to train
        self.work: dict[str, str] = {}  # what was done to a cell in this run

    def __enter__(self) -> Self:
        self.bars.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.bars.stop()

    def on_event(self, event: Event) -> None:
        """Updates the bars; prints a line where a cell ends."""
        match event:
            case Download(name, done, total):
                self._download(name, done, total)
            case DryRun(done, total):
                self._dry_run(done, total)
            case TrainStart(cell, images, done):
                self._open(cell.folder_name, describe(cell), images, done, unit="images")
                self.began[cell.folder_name] = time.monotonic()
            case TrainProgress(cell, images):
                self.bars.advance(self.tasks[cell.folder_name], images)
            case EvalStart(cell, spec, done, total):
                self._trained(cell)
                self.work.setdefault(cell.folder_name, "evaluated")
                self._open(cell.folder_name, f"{spec}: {describe(cell)}", total, done)
            case CellDone(cell):
                self._trained(cell)
                self._close(cell.folder_name)
                work = self.work.get(cell.folder_name, "was trained before")
                errors.print(f"{describe(cell)}: {work}", soft_wrap=True)
            case CellFailed(cell, error):
                self._close(cell.folder_name)
                errors.print(f"failed: {describe(cell)}: {error}", style="red", soft_wrap=True)

    def _download(self, name: str, done: int, total: int) -> None:
        """One bar at a time; one line for each source where there is no terminal."""
        if name not in self.tasks:
            for task in self.tasks.values():
                self.bars.update(task, visible=False)
            self._open(name, name, None, 0, unit="bytes")
            if not errors.is_terminal:
                errors.print(name, soft_wrap=True)
        self.bars.update(self.tasks[name], completed=done, total=total or None, visible=not total or done < total)

    def _dry_run(self, done: int, total: int) -> None:
        if "dry run" not in self.tasks:
            if total > LONG:
                errors.print(f"dry run of {total} configurations on two images")
            self._open("dry run", "dry run", total, 0)
        self.bars.update(self.tasks["dry run"], completed=done, visible=done < total)

    def _trained(self, cell: Cell) -> None:
        if cell.folder_name in self.began:
            self.work[cell.folder_name] = f"trained in {time.monotonic() - self.began.pop(cell.folder_name):.0f} s"

    def _open(self, name: str, text: str, total: float | None, done: int, *, unit: str = "") -> None:
        self._close(name)
        self.tasks[name] = self.bars.add_task(text, total=total, completed=done, unit=unit)

    def _close(self, name: str) -> None:
        if name in self.tasks:
            self.bars.remove_task(self.tasks.pop(name))


class _Amount(ProgressColumn):
    """How much is done of how much, in bytes for downloads."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes, self.count = DownloadColumn(), MofNCompleteColumn()

    def render(self, task: Task) -> Text:
        """The amounts of a task."""
        return (self.bytes if task.fields.get("unit") == "bytes" else self.count).render(task)


class _Speed(ProgressColumn):
    """Images per second, where images are counted."""

    def render(self, task: Task) -> Text:
        """The speed over the last seconds."""
        return Text(f"{task.speed:,.0f} images/s" if task.speed and task.fields.get("unit") == "images" else "")


def describe(cell: Cell) -> str:
    """A cell in one line."""
    return f"{cell.data} · {cell.model} · {cell.label} · seed {cell.seed}"

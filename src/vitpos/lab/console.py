"""Shows a run on standard error: a live bar per training on a terminal, otherwise one line per finished training."""

from __future__ import annotations

import time
from typing import Any, Self

import rich.console
from rich import progress
from rich.table import Column
from rich.text import Text

from vitpos.lab import events
from vitpos.lab.cells import Cell
from vitpos.lab.events import Event, Observer
from vitpos.printable import printable

LONG = 20  # number of configurations above which the dry run prints a line


class PlainConsole(rich.console.Console):
    """A console that writes out control characters in texts, so that names from files cannot send terminal escapes."""

    def render_str(self, text: str, **options: Any) -> Text:
        """Returns a text without control characters, as `rich.console.Console` does for every string that it prints."""
        return super().render_str(printable(text), **options)


stderr = PlainConsole(stderr=True, highlight=False, markup=False)


class Console(Observer):
    """Context manager that shows the progress of downloads, dry run, trainings and evaluations on standard error."""

    def __init__(self) -> None:
        self.bars = progress.Progress(
            progress.TextColumn(
                "{task.description}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1)
            ),
            progress.BarColumn(20),
            _Amount(),
            _Speed(),
            progress.TimeRemainingColumn(),
            console=stderr,
            transient=True,
            expand=True,
            disable=not stderr.is_terminal,
        )
        self.tasks: dict[str, progress.TaskID] = {}  # by folder name of the cell, or by name of the download
        self.began: dict[str, float] = {}  # start time of training by cell
        self.evaluated: dict[str, int] = {}  # number of finished evaluations by cell
        self.work: dict[str, str] = {}  # text of the line that is printed when the cell is done

    def __enter__(self) -> Self:
        self.bars.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.bars.stop()

    def on_event(self, event: Event) -> None:
        """Updates the progress bars for an event of the run; prints a line when a training is done or has failed."""
        match event:
            case events.Download(name, done, total):
                self._download(name, done, total)
            case events.DryRun(done, total):
                self._dry_run(done, total)
            case events.TrainStart(cell, images, done):
                self._open(cell.folder_name, describe(cell), images, done, unit="images")
                self.began[cell.folder_name] = time.monotonic()
            case events.TrainProgress(cell, images):
                self.bars.advance(self.tasks[cell.folder_name], images)
            case events.EvalStart(cell, spec, done, total):
                self._trained(cell)
                self.work.setdefault(cell.folder_name, "evaluated")
                self.evaluated[cell.folder_name] = done
                self._open(cell.folder_name, f"{spec}: {describe(cell)}", total, done)
            case events.EvalProgress(cell, _, fraction):
                done = self.evaluated[cell.folder_name]
                self.bars.update(self.tasks[cell.folder_name], completed=done + fraction)
            case events.CellDone(cell):
                self._trained(cell)
                self._close(cell.folder_name)
                work = self.work.get(cell.folder_name, "already done")
                stderr.print(f"{describe(cell)}: {work}", soft_wrap=True)
            case events.CellFailed(cell, error):
                self._close(cell.folder_name)
                stderr.print(f"failed: {describe(cell)}: {error}", style="red", soft_wrap=True)

    def _download(self, name: str, done: int, total: int) -> None:
        """Shows ``done`` of ``total`` bytes of a download as the only bar; without a terminal, prints one line per file."""
        if name not in self.tasks:
            for task in self.tasks.values():
                self.bars.update(task, visible=False)
            self._open(name, name, None, 0, unit="bytes")
            if not stderr.is_terminal:
                stderr.print(name, soft_wrap=True)
        self.bars.update(self.tasks[name], completed=done, total=total or None, visible=not total or done < total)

    def _dry_run(self, done: int, total: int) -> None:
        if "dry run" not in self.tasks:
            if total > LONG:
                stderr.print(f"dry run: {total} configurations on two images each")
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


class _Amount(progress.ProgressColumn):
    """Progress-bar column with completed and total amount, in bytes for downloads."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes, self.count = progress.DownloadColumn(), progress.MofNCompleteColumn()

    def render(self, task: progress.Task) -> Text:
        """Returns the completed and total amount of a task as text, such as ``3/10``."""
        return (self.bytes if task.fields.get("unit") == "bytes" else self.count).render(task)


class _Speed(progress.ProgressColumn):
    """Progress-bar column with images per second, empty for tasks that do not count images."""

    def render(self, task: progress.Task) -> Text:
        """Returns the images per second of the last seconds as text; empty for tasks that do not count images."""
        return Text(f"{task.speed:,.0f} images/s" if task.speed and task.fields.get("unit") == "images" else "")


def describe(cell: Cell) -> str:
    """Returns a line of text with the encoding, seed, model and data of a cell (one training)."""
    return f"{cell.label} · seed {cell.seed} · {cell.model} · {cell.data}"

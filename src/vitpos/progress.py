"""How the command line follows a run: a live bar per cell on standard error, tables on standard output."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as Bar
from rich.table import Table as Grid
from rich.text import Text

from vitpos.errors import WorkError
from vitpos.experiment import Cell, Table
from vitpos.lab import Watch
from vitpos.store import Folder, Run
from vitpos.summary import complete, labels, summarise

errors = Console(stderr=True, highlight=False)
output = Console(highlight=False)


class Progress(Watch):
    """Shows each cell as it trains, and each table as soon as all its cells are there."""

    def __init__(self) -> None:
        self.bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(20),
            MofNCompleteColumn(),
            Speed(),
            TimeRemainingColumn(),
            console=errors,
            transient=True,
            disable=not errors.is_terminal,
        )
        self.tasks: dict[Cell, TaskID] = {}
        self.shown: set[str] = set()

    def __enter__(self) -> Self:
        self.bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.bar.stop()

    def start(self, cell: Cell, images: int, done: int) -> None:
        """Opens the bar of a cell."""
        self.tasks[cell] = self.bar.add_task(describe(cell), total=images, completed=done)

    def tick(self, cell: Cell, images: int) -> None:
        """Moves the bar."""
        self.bar.advance(self.tasks[cell], images)

    def finish(self, cell: Cell, folder: Folder) -> None:
        """Says that a cell is done, and prints the tables that it completes."""
        self._close(cell)
        seconds = sum(record["seconds"] for record in folder.run_of(cell).log)
        errors.print(f"{describe(cell)}: trained in {seconds:.0f} s", soft_wrap=True)
        due = [t for t in folder.experiment.tables if t.title not in self.shown and complete(folder, t)]
        if due:
            self.bar.stop()  # tables go to standard output, which may be the same screen
            for table in due:
                self.shown.add(table.title)
                show_table(folder, table)
            self.bar.start()

    def fail(self, cell: Cell, error: WorkError) -> None:
        """Says what went wrong with a cell."""
        self._close(cell)
        errors.print(f"[red]failed[/red] {describe(cell)}: {error}", soft_wrap=True)

    def _close(self, cell: Cell) -> None:
        if cell in self.tasks:
            self.bar.remove_task(self.tasks.pop(cell))


class Speed(ProgressColumn):
    """Images per second."""

    def render(self, task: Task) -> Text:
        """The speed over the last while."""
        return Text(f"{task.speed:,.0f} images/s" if task.speed else "")


def describe(cell: Cell) -> str:
    """A cell in one line."""
    swept = "".join(f", {key}={value}" for key, value in cell.swept)
    return f"{cell.data} · {cell.model} · {cell.encoding}{swept} · seed {cell.seed}"


def show_table(folder: Folder, table: Table) -> None:
    """Prints a table; a figure from elsewhere stands below ours."""
    rows = summarise(folder, table)
    seeds = len({cell.seed for cell in folder.experiment.cells})
    grid = Grid(title=table.title, title_justify="left", title_style="bold", pad_edge=False)
    for label in labels(rows):
        grid.add_column(label, overflow="fold")
    for column in table.columns:
        grid.add_column(column.label, justify="right")
    for row in rows:
        texts = [f.text + (f"\n[dim]({f.reference_text})[/dim]" if f.reference_text else "") for f in row.figures]
        grid.add_row(*(row.label(name) for name in labels(rows)), *texts)
    output.print()
    output.print(grid)
    about = [table.note] if table.note else []
    if any(column.percent for column in table.columns):
        about.append(
            "In percent" + (f", mean ± standard deviation over {seeds} seeds." if seeds > 1 else ", one seed.")
        )
    if any(figure.reference_text for row in rows for figure in row.figures):
        about.append(f"In brackets: {folder.experiment.source}.")
    output.print(" ".join(about), style="dim")


def show_scores(runs: Iterable[Run], evaluations: Iterable[str]) -> None:
    """Prints what some evaluations gave, a line per number."""
    grid = Grid("cell", "evaluation", "metric", "value", pad_edge=False)
    for run in runs:
        for evaluation in evaluations:
            for metric, value in run.scores[evaluation].items():
                grid.add_row(describe(run.cell), evaluation, metric, f"{value:.6g}")
    output.print(grid)

"""How the command line follows a run: a live bar per cell on standard error, tables on standard output."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Self, TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as Bar
from rich.table import Column
from rich.table import Table as Grid
from rich.text import Text

from vitpos.attacks.recovery import Recovery, following
from vitpos.cells import Cell, Table
from vitpos.errors import WorkError
from vitpos.lab import Watch
from vitpos.metrics.image_similarity import unavailable_metrics
from vitpos.questions import QUESTIONS
from vitpos.store import Folder
from vitpos.summary import Figure, Row, compared, complete, labels, measured, seeds_of, shared, summarise

T = TypeVar("T")
NARROWEST = 26  # characters of a column of text that can be read
WIDEST = 13  # of a column of numbers and its name
LONG = 20  # kinds of cells whose rehearsal is worth a word
errors = Console(stderr=True, highlight=False, markup=False)
output = Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else 160)


class Progress(Watch):
    """Shows each cell as it trains, and each table as soon as all its cells are there."""

    def __init__(self) -> None:
        self.bar = Bar(
            TextColumn(
                "{task.description}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1)
            ),
            BarColumn(20),
            MofNCompleteColumn(),
            Speed(),
            TimeRemainingColumn(),
            console=errors,
            transient=True,
            expand=True,
            disable=not errors.is_terminal,
        )
        self.tasks: dict[Cell, TaskID] = {}
        self.rehearsal: TaskID | None = None
        self.trained: set[Cell] = set()
        self.shown: set[int] = set()

    def __enter__(self) -> Self:
        self.bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.bar.stop()

    def check(self, done: int, all: int) -> None:
        """Shows how far the rehearsal is."""
        if self.rehearsal is None:
            if all > LONG:
                errors.print(f"rehearsing {all} kinds of cell on two images each before any is trained")
            self.rehearsal = self.bar.add_task("rehearsing", total=all)
        self.bar.update(self.rehearsal, completed=done, visible=done < all)

    def start(self, cell: Cell, images: int, done: int) -> None:
        """Opens the bar of a cell."""
        self.tasks[cell] = self.bar.add_task(describe(cell), total=images, completed=done, unit="images")
        self.trained.add(cell)

    def tick(self, cell: Cell, images: int) -> None:
        """Moves the bar."""
        self.bar.advance(self.tasks[cell], images)

    def ask(self, cell: Cell, spec: str, done: int, all: int) -> None:
        """Shows which question a cell is at."""
        self._close(cell)
        self.tasks[cell] = self.bar.add_task(f"{spec}: {describe(cell)}", total=all, completed=done, unit="")

    def finish(self, cell: Cell, folder: Folder) -> None:
        """Says that a cell is done, and prints the tables that it completes."""
        seconds = sum(record["seconds"] for record in folder.run_of(cell).log)
        how = f"trained in {seconds:.0f} s" if cell in self.trained else "was trained before"
        self._close(cell)
        errors.print(f"{describe(cell)}: {how}", soft_wrap=True)
        self.show([n for n, table in enumerate(folder.experiment.tables) if complete(folder, table)], folder)

    def fail(self, cell: Cell, error: WorkError) -> None:
        """Says what went wrong with a cell."""
        self._close(cell)
        errors.print(f"failed: {describe(cell)}: {error}", style="red", soft_wrap=True)

    def show(self, tables: Iterable[int], folder: Folder) -> None:
        """Prints those of the tables that have not been printed yet."""
        due = [number for number in tables if number not in self.shown]
        self.shown.update(due)
        if due:
            self.bar.stop()  # tables go to standard output, which may be the same screen
            for number in due:
                show_table(folder, folder.experiment.tables[number])
            self.bar.start()

    def _close(self, cell: Cell) -> None:
        if cell in self.tasks:
            self.bar.remove_task(self.tasks.pop(cell))


class Speed(ProgressColumn):
    """Images per second, where images are counted."""

    def render(self, task: Task) -> Text:
        """The speed over the last while."""
        return Text(f"{task.speed:,.0f} images/s" if task.speed and task.fields.get("unit") else "")


def describe(cell: Cell) -> str:
    """A cell in one line."""
    return f"{cell.data} · {cell.model} · {cell.told} · seed {cell.seed}"


@contextmanager
def attacking(count: int) -> Iterator[Callable[[Cell, str], AbstractContextManager[None]]]:
    """Shows how far so many attacks are; each is worked on inside what is given."""
    columns = TextColumn("{task.description}", markup=False), BarColumn(20), TimeRemainingColumn()
    with Bar(*columns, console=errors, transient=True, disable=not errors.is_terminal) as bar:
        task = bar.add_task("", total=float(count))

        @contextmanager
        def now(cell: Cell, spec: str) -> Iterator[None]:
            done = bar.tasks[task].completed
            (term,) = QUESTIONS.parse(spec)
            images = term.options.get("images", QUESTIONS.describe(term.name).options["images"].default)
            bar.update(task, description=f"{describe(cell)}: {spec}")
            with following(lambda share: bar.advance(task, share / images)):
                yield
            bar.update(task, completed=done + 1)

        yield now


@contextmanager
def watching(count: int) -> Iterator[Callable[[str, Callable[[], T]], T]]:
    """Shows how far so many pieces of work are; each is done by what is given, under its name."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(20),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Bar(*columns, console=errors, transient=True, disable=not errors.is_terminal) as bar:
        task = bar.add_task("", total=float(count))

        def now(name: str, work: Callable[[], T]) -> T:
            bar.update(task, description=name)
            done = work()
            bar.advance(task)
            return done

        yield now


def show_columns(names: Sequence[str], rows: Sequence[tuple[str, list[str]]]) -> None:
    """Prints what is said of several things, side by side, as many at a time as can be read."""
    fitting = max(1, output.width // NARROWEST - 1)
    for first in range(0, len(names), fitting):
        some = slice(first, first + fitting)
        grid = Grid(pad_edge=False)
        for name in ("", *names[some]):
            grid.add_column(Text(name), overflow="fold")
        for key, values in rows:
            if any(value != "–" for value in values[some]):
                grid.add_row(Text(key), *map(Text, values[some]))
        output.print(grid)


def show_attacks(answers: Sequence[tuple[Cell, str, Recovery]]) -> None:
    """Prints a table for each attack: a row for each model, and why if it could not be attacked."""
    rows = [Row(cell, ()) for cell, _, _ in answers]
    several = len({cell.seed for cell, _, _ in answers}) > 1
    for spec in dict.fromkeys(spec for _, spec, _ in answers):
        asked = [(Row(cell, ()), answer) for cell, attack, answer in answers if attack == spec]
        metrics = list(dict.fromkeys(name for _, answer in asked for name in answer.numbers))
        words = [*labels(rows), *(["seed"] if several else [])]
        fitting = max(3, (output.width - NARROWEST * len(words)) // WIDEST)
        output.print()
        for first in range(0, max(1, len(metrics)), fitting):
            some = metrics[first : first + fitting]
            grid = Grid(title=Text("" if first else spec, "bold"), title_justify="left", pad_edge=False)
            for label in words:
                grid.add_column(label, overflow="fold")
            for name in some or [""]:
                grid.add_column(name, justify="right" if metrics else "left")
            for row, answer in asked:
                about = [row.label(name) for name in labels(rows)] + ([str(row.cell.seed)] if several else [])
                numbers = [f"{answer.numbers[n]:.4g}" if n in answer.numbers else "–" for n in some]
                grid.add_row(*map(Text, about), *(numbers or [answer.why]))
            output.print(grid)
        reasons: dict[str, list[str]] = {}
        for row, answer in asked if metrics else ():
            if answer.why:
                reasons.setdefault(answer.why, []).append(" · ".join(map(row.label, labels(rows))) or row.cell.encoding)
        for why, names in reasons.items():
            output.print(f"Not {', '.join(dict.fromkeys(names))}: {why}.", style="dim")
    output.print(f"{shared(rows)} Definitions: vitpos list attacks NAME.".strip(), style="dim")
    sizes = [tuple(answer.goal.shape[1:]) for _, _, answer in answers if answer.goal is not None]
    for metric, why in unavailable_metrics(sizes[0]).items() if sizes else ():
        output.print(f"No {metric}: {why}.", style="dim")


def show_table(folder: Folder, table: Table) -> None:
    """Prints a table; a figure from elsewhere stands below ours."""
    rows = summarise(folder, table)
    grid = Grid(title=Text(table.title, "bold"), title_justify="left", pad_edge=False)
    for label in labels(rows):
        grid.add_column(Text(label), overflow="fold")
    for column in table.columns:
        grid.add_column(Text(column.label), justify="right", overflow="fold")
    for row in rows:
        grid.add_row(*(Text(row.label(name)) for name in labels(rows)), *map(_cell, row.figures))
    output.print()
    output.print(grid)
    about = [text for text in (shared(rows), table.note) if text]
    if any(column.percent for column in table.columns):
        seeds = seeds_of(rows)
        which = [column.label for column in table.columns if column.percent]
        whole = "In percent" if len(which) == len(table.columns) else f"In percent: {', '.join(which)}"
        about.append(whole + (f"; mean ± standard deviation over {seeds} seeds." if seeds > 1 else "; one seed."))
    if note := compared(table, rows):
        about.append(note.strip())
    if any(figure.reference_text for row in rows for figure in row.figures):
        about.append(f"In brackets: {folder.experiment.source or 'reference'}.")
    output.print(" ".join(about), style="dim")


def show_answers(folder: Folder, spec: str) -> None:
    """Prints what an evaluation gave: a line for each number, or, of many rows of cells, a column for each number."""
    table = measured(folder, [spec])
    rows = [row for row in summarise(folder, table) if any(figure.values for figure in row.figures)]
    silent: dict[str, list[str]] = {}
    for cell, run in folder.runs:
        if run.scores.get(spec) == {}:
            silent.setdefault(run.pictures(spec)[1] or "its definition says for whom there are none", []).append(
                cell.encoding
            )
    for why, encodings in silent.items():
        output.print(f"{spec}: no numbers for {', '.join(dict.fromkeys(encodings))}: {why}.", style="dim")
    if not rows or len(rows) > 8:
        return show_table(folder, replace(table, title=spec)) if rows else None
    grid = Grid(title=Text(spec, "bold"), title_justify="left", pad_edge=False)
    grid.add_column("", no_wrap=True)
    for row in rows:
        heading = " · ".join(filter(None, map(row.label, labels(rows))))
        grid.add_column(Text(heading), justify="right", overflow="fold")
    for number, column in enumerate(table.columns):
        grid.add_row(Text(column.metric), *(Text(row.figures[number].text) for row in rows))
    output.print()
    output.print(grid)
    about = [shared(rows), "As in results.csv: shares are from 0 to 1."]
    output.print(" ".join(filter(None, about)), style="dim")


def _cell(figure: Figure) -> Text:
    reference = Text(f"\n({figure.reference_text})", "dim") if figure.reference_text else Text()
    return Text(figure.text + figure.mark) + reference

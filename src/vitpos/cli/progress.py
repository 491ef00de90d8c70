"""Progress bars that commands show on standard error."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from rich import progress

from vitpos.cli.tables import show_table
from vitpos.lab.console import Console, stderr
from vitpos.lab.events import CellDone, Event, RunStart
from vitpos.lab.results import Results
from vitpos.lab.summary import complete


class RunProgress(Console):
    """Shows the progress of a run, and prints each result table as soon as all trainings in it are finished."""

    def __init__(self) -> None:
        super().__init__()
        self.results: Results | None = None
        self.shown: set[int] = set()

    def on_event(self, event: Event) -> None:
        """Updates the progress bars for an event of the run; prints the tables that are complete after it."""
        super().on_event(event)
        if isinstance(event, RunStart):
            self.results = event.results
        if isinstance(event, CellDone) and self.results:
            tables = self.results.experiment.tables
            self.show([n for n, table in enumerate(tables) if complete(self.results, table)], self.results)

    def show(self, tables: Iterable[int], results: Results) -> None:
        """Prints result tables of the experiment, except those that were printed before.

        Args:
            tables: indices of the tables in the experiment.
            results: the results that the tables show.
        """
        due = [number for number in tables if number not in self.shown]
        self.shown.update(due)
        if due:
            self.bars.stop()  # tables go to standard output, which may be the same terminal
            for number in due:
                show_table(results, results.experiment.tables[number])
            self.bars.start()


@contextmanager
def progress_bar(total: int) -> Iterator[tuple[progress.Progress, progress.TaskID]]:
    """Context manager that yields (progress bar, task id) for a loop over ``total`` items.

    The bar is hidden if standard error is not a terminal.
    """
    columns = (
        progress.SpinnerColumn(),
        progress.TextColumn("{task.description}", markup=False),
        progress.BarColumn(20),
        progress.MofNCompleteColumn(),
        progress.TimeElapsedColumn(),
        progress.TimeRemainingColumn(),
    )
    with progress.Progress(*columns, console=stderr, transient=True, disable=not stderr.is_terminal) as bar:
        yield bar, bar.add_task("", total=float(total))

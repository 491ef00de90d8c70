"""The tables that commands print on standard output."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace

from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from vitpos.evaluations.result import Result
from vitpos.lab.cells import Cell, Table
from vitpos.lab.results import Results
from vitpos.lab.summary import (
    Estimate,
    Row,
    compared,
    format_estimate,
    format_number,
    labels,
    measured,
    seeds_of,
    shared,
    summarize,
)
from vitpos.metrics.image_similarity import unavailable_metrics

NARROWEST = 26  # characters of a column of text
WIDEST = 13  # characters of a column of numbers
output = Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else 160)


def show_columns(names: Sequence[str], rows: Sequence[tuple[str, list[str]]]) -> None:
    """Prints the properties of several models side by side, in blocks of as many models as fit the width."""
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


def show_attacks(results: Sequence[tuple[Cell, str, Result]]) -> None:
    """Prints a table for each attack with a row per model, and the reasons where an attack does not apply."""
    rows = [Row(cell, ()) for cell, _, _ in results]
    several = len({cell.seed for cell, _, _ in results}) > 1
    for spec in dict.fromkeys(spec for _, spec, _ in results):
        attacked = [(Row(cell, ()), result) for cell, attack, result in results if attack == spec]
        metrics = list(dict.fromkeys(name for _, result in attacked for name in result.numbers))
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
            for row, result in attacked:
                about = [row.label(name) for name in labels(rows)] + ([str(row.cell.seed)] if several else [])
                numbers = [f"{result.numbers[n]:.4g}" if n in result.numbers else "–" for n in some]
                grid.add_row(*map(Text, about), *(numbers or [result.reason]))
            output.print(grid)
        reasons: dict[str, list[str]] = {}
        for row, result in attacked if metrics else ():
            if result.reason:
                reasons.setdefault(result.reason, []).append(
                    " · ".join(map(row.label, labels(rows))) or row.cell.encoding
                )
        for why, names in reasons.items():
            output.print(f"Not applicable to {', '.join(dict.fromkeys(names))}: {why}.", style="dim")
    output.print(f"{shared(rows)} Definitions: vitpos list attacks NAME.".strip(), style="dim")
    sizes = [tuple(result.images["target"].shape[1:]) for _, _, result in results if result.images]
    for metric, why in unavailable_metrics(sizes[0]).items() if sizes else ():
        output.print(f"{metric} is not computed: {why}.", style="dim")


def show_table(results: Results, table: Table) -> None:
    """Prints a table; published numbers are in brackets below the measured ones."""
    rows = summarize(results, table)
    grid = Grid(title=Text(table.title, "bold"), title_justify="left", pad_edge=False)
    for label in labels(rows):
        grid.add_column(Text(label), overflow="fold")
    for column in table.columns:
        grid.add_column(Text(column.label), justify="right", overflow="fold")
    for row in rows:
        grid.add_row(*(Text(row.label(name)) for name in labels(rows)), *map(_cell, row.estimates))
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
    if any(estimate.published is not None for row in rows for estimate in row.estimates):
        about.append(f"In brackets: {results.experiment.published_source or 'published numbers'}.")
    output.print(" ".join(about), style="dim")


def show_evaluation(results: Results, spec: str) -> None:
    """Prints the numbers of an evaluation: a line per metric, or a column per metric if there are more than 8 rows."""
    table = measured(results, [spec])
    rows = [row for row in summarize(results, table) if row.measured]
    silent: dict[str, list[str]] = {}
    for cell, folder in results.trained:
        result = folder.load_result(spec)
        if spec in results.of(cell) and not (result.numbers or result.curves or result.arrays):
            why = (
                result.reason
                or f"the evaluation does not apply, see 'vitpos list evaluations {spec.partition('(')[0]}'"
            )
            silent.setdefault(why, []).append(cell.encoding)
    for why, encodings in silent.items():
        output.print(f"{spec}: no numbers for {', '.join(dict.fromkeys(encodings))}: {why}.", style="dim")
    if not rows or len(rows) > 8:
        return show_table(results, replace(table, title=spec)) if rows else None
    grid = Grid(title=Text(spec, "bold"), title_justify="left", pad_edge=False)
    grid.add_column("", no_wrap=True)
    for row in rows:
        heading = " · ".join(filter(None, map(row.label, labels(rows))))
        grid.add_column(Text(heading), justify="right", overflow="fold")
    for number, column in enumerate(table.columns):
        grid.add_row(Text(column.name), *(Text(format_estimate(row.estimates[number])) for row in rows))
    output.print()
    output.print(grid)
    about = [shared(rows), "As in results.csv: fractions are from 0 to 1."]
    output.print(" ".join(filter(None, about)), style="dim")


def _cell(estimate: Estimate) -> Text:
    text = Text(format_estimate(estimate, mark=True))
    if estimate.published is None:
        return text
    return text + Text(f"\n({format_number(estimate.published, percent=estimate.percent)})", "dim")

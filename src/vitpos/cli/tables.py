"""The tables that commands print on standard output."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping, Sequence

from rich.table import Table as Grid
from rich.text import Text

from vitpos.evaluations.result import Result
from vitpos.lab.cells import Cell
from vitpos.lab.console import PlainConsole
from vitpos.lab.results import Results
from vitpos.lab.summary import Estimate, Row, evaluation_table, labels, summarize
from vitpos.lab.table_text import (
    evaluations_of,
    format_estimate,
    format_number,
    instructions_text,
    seeds_text,
    shared,
    significance_legend,
)
from vitpos.lab.tables import Table
from vitpos.metrics.image_similarity import unavailable_metrics
from vitpos.printable import printable

NARROWEST = 26  # characters of a column of text
WIDEST = 13  # characters of a column of numbers
output = PlainConsole(highlight=False, markup=False, width=None if sys.stdout.isatty() else 160)


def show_columns(names: Sequence[str], rows: Sequence[tuple[str, list[str]]]) -> None:
    """Prints the properties of several models side by side, split into blocks of as many models as fit the terminal width.

    Args:
        names: column headings, one per model.
        rows: pairs (property, one value per model).
    """
    fitting = max(1, output.width // NARROWEST - 1)
    for first in range(0, len(names), fitting):
        some = slice(first, first + fitting)
        shown = [[key, *values[some]] for key, values in rows if any(value != "–" for value in values[some])]
        output.print(_grid("", ["", *names[some]], [], shown))


def show_numbers(heading: str, rows: Sequence[tuple[str, Mapping[str, float]]]) -> None:
    """Prints a table of numbers with a column per name.

    Args:
        heading: heading of the first column.
        rows: pairs (text of the first column, numbers by name).
    """
    names = list(dict.fromkeys(name for _, numbers in rows for name in numbers))
    names = [name for name in names if any(math.isfinite(numbers.get(name, math.nan)) for _, numbers in rows)]
    shown = [[text, *(f"{numbers[n]:.4g}" if n in numbers else "–" for n in names)] for text, numbers in rows]
    output.print(_grid("", [heading], [name.replace("_", " ") for name in names], shown))


def show_attacks(results: Sequence[tuple[Cell, str, Result]]) -> None:
    """Prints a table for each attack with a row per model, and the reasons where an attack does not apply.

    Args:
        results: triples (settings of the model's training, attack such as ``closed_form(images=8)``, result).
    """
    rows = [Row(cell, ()) for cell, _, _ in results]
    seeds = {cell.seed for cell, _, _ in results}
    headings = [*labels(rows), *(["seed"] if len(seeds) > 1 else [])]
    fitting = max(3, (output.width - NARROWEST * len(headings)) // WIDEST)
    for spec in dict.fromkeys(spec for _, spec, _ in results):
        attacked = [(Row(cell, ()), result) for cell, attack, result in results if attack == spec]
        metrics = list(dict.fromkeys(name for _, result in attacked for name in result.numbers))
        output.print()
        for first in range(0, max(1, len(metrics)), fitting):
            some = metrics[first : first + fitting]
            shown = []
            for row, result in attacked:
                about = [str(row.cell.seed) if name == "seed" else row.label(name) for name in headings]
                numbers = [f"{result.numbers[name]:.4g}" if name in result.numbers else "–" for name in some]
                shown.append([*about, *(numbers or [result.reason])])
            texts = headings if metrics else [*headings, ""]  # the reason in place of numbers
            output.print(_grid("" if first else spec, texts, some, shown))
        reasons: dict[str, list[str]] = {}
        for row, result in attacked if metrics else ():
            if result.reason:
                name = " · ".join(map(row.label, labels(rows))) or row.cell.encoding
                reasons.setdefault(result.reason, []).append(name)
        for reason, names in reasons.items():
            output.print(f"Not applicable to {', '.join(dict.fromkeys(names))}: {reason}.", style="dim")
    output.print(f"{shared(rows)} Definitions: vitpos list attacks NAME.".strip(), style="dim")
    sizes = [tuple(result.images["target"].shape[1:]) for _, _, result in results if result.images]
    for metric, reason in unavailable_metrics(sizes[0]).items() if sizes else ():
        output.print(f"{metric} is not computed: {reason}.", style="dim")


def show_cells(parameters: Mapping[Cell, int]) -> None:
    """Prints a table of the cells (trainings) of an experiment, one row for those that differ only in their seed.

    Args:
        parameters: cell → number of parameters of its model.
    """
    groups: dict[tuple[object, ...], list[Cell]] = {}
    for cell in parameters:
        groups.setdefault(cell.group, []).append(cell)
    rows = [Row(cells[0], ()) for cells in groups.values()]
    shown = [
        [*map(row.label, labels(rows)), str(len(cells)), f"{parameters[row.cell]:,}"]
        for row, cells in zip(rows, groups.values(), strict=True)
    ]
    output.print(_grid("", labels(rows), ["seeds", "parameters"], shown))
    output.print(f"{len(parameters)} cells. {shared(rows)}".strip(), style="dim")


def show_table(results: Results, table: Table) -> None:
    """Prints a result table of an experiment; published numbers are in brackets below the measured ones."""
    rows = summarize(results, table)
    shown: list[list[str | Text]] = [
        [*map(row.label, labels(rows)), *map(_estimate_text, row.estimates)] for row in rows
    ]
    output.print()
    output.print(_grid(table.title, labels(rows), [column.label for column in table.columns], shown))
    about = [shared(rows), table.note]
    if which := [column.label for column in table.columns if column.percent]:
        about.append("In percent." if len(which) == len(table.columns) else f"In percent: {', '.join(which)}.")
    about.append(seeds_text(rows))
    about.append(significance_legend(table, rows).strip())
    about.append(instructions_text([results], evaluations_of(table)))
    if any(estimate.published is not None for row in rows for estimate in row.estimates):
        about.append(f"In brackets: {results.experiment.published_source or 'published numbers'}.")
    output.print(" ".join(filter(None, about)), style="dim")


def show_evaluation(results: Results, spec: str) -> None:
    """Prints the numbers of one evaluation for all trained models.

    Up to 8 models are columns and the metrics rows; more models are rows and the metrics columns.

    Args:
        spec: the evaluation with its options, such as ``jigsaw(per='image')``.
    """
    silent: dict[str, list[str]] = {}
    for cell, folder in results.trained:
        result = folder.load_result(spec)
        if spec in results.of(cell) and not (result.numbers or result.curves or result.arrays):
            other = f"the evaluation does not apply, see 'vitpos list evaluations {spec.partition('(')[0]}'"
            silent.setdefault(result.reason or other, []).append(cell.encoding)
    for reason, encodings in silent.items():
        output.print(f"{spec}: no numbers for {', '.join(dict.fromkeys(encodings))}: {reason}.", style="dim")
    table = evaluation_table(results, spec)
    rows = [row for row in summarize(results, table) if row.has_values]
    if not rows or len(rows) > 8:
        return show_table(results, table) if rows else None
    estimates = zip(*(row.estimates for row in rows), strict=True)
    shown = [[c.name, *map(format_estimate, some)] for c, some in zip(table.columns, estimates, strict=True)]
    headings = [" · ".join(filter(None, map(row.label, labels(rows)))) for row in rows]
    grid = _grid(spec, [""], headings, shown)
    grid.columns[0].no_wrap = True
    output.print()
    output.print(grid)
    about = [shared(rows), table.note, seeds_text(rows), instructions_text([results], [spec])]
    output.print(" ".join(filter(None, about)), style="dim")


def _grid(title: str, texts: Sequence[str], numbers: Sequence[str], rows: Iterable[Sequence[str | Text]]) -> Grid:
    """Returns a rich table with a bold title.

    Args:
        texts: headings of the text columns, which are left-aligned and to the left of the number columns.
        numbers: headings of the number columns, which are right-aligned.
        rows: rows of the table, each with one value per column.
    """
    grid = Grid(title=Text(printable(title), "bold") if title else None, title_justify="left", pad_edge=False)
    for heading in texts:
        grid.add_column(Text(printable(heading)), overflow="fold")
    for heading in numbers:
        grid.add_column(Text(printable(heading)), justify="right", overflow="fold")
    for row in rows:
        grid.add_row(*(Text(printable(value)) if isinstance(value, str) else value for value in row))
    return grid


def _estimate_text(estimate: Estimate) -> Text:
    text = Text(format_estimate(estimate, mark=True))
    if estimate.published is None:
        return text
    return text + Text(f"\n({format_number(estimate.published, percent=estimate.percent)})", "dim")

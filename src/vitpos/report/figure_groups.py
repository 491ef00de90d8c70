"""Which table rows share a figure on the page, and in which color they are drawn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TypeVar

from vitpos.lab.cell_folder import CellFolder
from vitpos.lab.results import Results
from vitpos.lab.summary import Row, grouped, labels, summarize
from vitpos.lab.tables import Table
from vitpos.plotting import COLORS, INK

NUM_COLORED = 6  # rows drawn in color if there are more rows than colors
Item = TypeVar("Item")


def figure_groups(rows: Sequence[Row], *, shared: int = 0) -> dict[str, dict[str, Row]]:
    """Groups table rows into figures; returns title of the figure → name of the row in it → row.

    A figure holds the rows that differ only in their encoding. If each figure would have a single row, or if no data set
    has more than ``shared`` rows, a figure holds all rows with the same data set instead. Rows of a table that have no
    number in any column are left out.
    """
    groups, names = grouped(rows), ["encoding"]
    data = Counter(row.cell.data for row in rows)
    if len(groups) == len(rows) or max(data.values(), default=0) <= shared:
        groups, names = {}, [name for name in labels(rows) if name != "trained on"]
        for row in rows:
            groups.setdefault(f"trained on {row.cell.data}" if len(data) > 1 else "", []).append(row)
    named = {
        name: {" · ".join(map(row.label, names)): row for row in group if not row.estimates or row.has_values}
        for name, group in groups.items()
    }
    return {name: group for name, group in named.items() if group}


def line_groups(rows: Sequence[Row]) -> dict[str, dict[str, Row]]:
    """Groups table rows into line charts; returns title of the chart → name of the line in it → row.

    All rows with the same data set share a chart if there are enough colors, otherwise those that differ only in their
    encoding.
    """
    return figure_groups(rows, shared=len(COLORS))


def all_rows(results: Results) -> list[Row]:
    """Returns a row for each model of the experiment (its seeds combined), without numbers: only its settings."""
    return summarize(results, Table("", ()))


def row_colors(results: Results) -> dict[str, str]:
    """Returns name of the table row → color of its line, the same in all figures of the page.

    All rows have a color if there are enough colors. Otherwise only the baseline and the six best rows have one; the others
    are drawn in gray. Rows are ranked by their mean in the first column of the first table that shows them.
    """
    first: dict[tuple[object, ...], float] = {}
    for table in results.experiment.tables:
        sign = -1 if table.columns[0].better == "lower" else 1
        for row in summarize(results, table):
            if row.estimates[0].values:
                first.setdefault(row.cell.group, sign * row.estimates[0].mean)
    scores: dict[str, float] = {}
    for named in line_groups(all_rows(results)).values():
        for name, row in named.items():
            scores[name] = scores.get(name, 0.0) + first.get(row.cell.group, 0.0)
    baseline = baseline_encoding(results)
    ranked = sorted((name for name in scores if name != baseline), key=lambda name: -scores[name])
    colored = ranked if len(ranked) <= len(COLORS) else ranked[:NUM_COLORED]
    return dict(zip(colored, COLORS, strict=False)) | {baseline: INK}


def color_note(results: Results) -> str:
    """Returns the sentence for figure captions that explains which lines are in color."""
    baseline = baseline_encoding(results)
    dashed = f"{baseline}, dashed, and " if baseline else ""
    return f" In color: {dashed}the rows that are best in the first column of the first table."


def as_rows(figures: list[list[Item]]) -> list[list[Item]]:
    """Returns ``figures``, a list of rows of figures; if no row has more than one figure, they are joined into one row."""
    return figures if max(map(len, figures)) > 1 else [[figure for row in figures for figure in row]]


def baseline_encoding(results: Results) -> str:
    """Returns the baseline encoding of the first table that has one, such as ``learned``; an empty string if none has."""
    return next((table.baseline for table in results.experiment.tables if table.baseline), "")


def first_seed_folders(results: Results) -> dict[str, dict[str, CellFolder]]:
    """Returns the folder of the first trained seed of each model: title of the figure → name of the model → folder.

    A figure has all models with the same data set, or, if there are more of them than colors, those that differ only in
    their encoding. The title is empty if there is one figure.
    """
    first: dict[tuple[object, ...], CellFolder] = {}
    for cell, folder in results.trained:
        first.setdefault(cell.group, folder)
    found = {
        group: {name: first[row.cell.group] for name, row in rows.items() if row.cell.group in first}
        for group, rows in line_groups(all_rows(results)).items()
    }
    return {group: folders for group, folders in found.items() if folders}

"""Groups table rows into figures and assigns names and colors to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from matplotlib.figure import Figure

from vitpos.lab.cells import Table
from vitpos.lab.results import Results
from vitpos.lab.store import CellFolder
from vitpos.lab.summary import Row, grouped, labels, summarize
from vitpos.plotting import COLORS, INK
from vitpos.report.advice import among_best, supported

BRIGHT = 6  # rows drawn in color if there are more rows than colors


def panels(rows: Sequence[Row], *, most: int = 0) -> dict[str, dict[str, Row]]:
    """Groups rows into figures: title of the figure → name of the row in it → row.

    A figure holds rows that differ only in their encoding. It holds all rows of the same data instead if these are at most
    ``most``, or if every figure would have a single row. Rows without a number are left out; names do not depend on them.
    """
    groups, names = grouped(rows), ["encoding"]
    data = Counter(row.cell.data for row in rows)
    if len(groups) == len(rows) or max(data.values(), default=0) <= most:
        groups, names = {}, [name for name in labels(rows) if name != "trained on"]
        for row in rows:
            groups.setdefault(f"trained on {row.cell.data}" if len(data) > 1 else "", []).append(row)
    named = {
        name: {" · ".join(map(row.label, names)): row for row in group if _known(row)} for name, group in groups.items()
    }
    return {name: group for name, group in named.items() if group}


def _known(row: Row) -> bool:
    return not row.estimates or any(estimate.values for estimate in row.estimates)


def lines(rows: Sequence[Row]) -> dict[str, dict[str, Row]]:
    """Groups rows into line charts: all rows of the same data if there are enough colors for them."""
    return panels(rows, most=len(COLORS))


def colours(results: Results) -> dict[str, str]:
    """Colors by name of the row, the same on the whole page.

    All rows have a color if there are enough; otherwise the baseline of the tables and the rows that are most often among
    the best of a column (ties: highest number in the first column).
    """
    wins: Counter[tuple[object, ...]] = Counter()
    first: dict[tuple[object, ...], float] = {}
    for table in results.experiment.tables:
        for group in grouped(summarize(results, table)).values():
            for number, column in enumerate(table.columns):
                estimates = {row.cell.group: row.estimates[number] for row in group if row.estimates[number].values}
                first = {row: estimate.mean for row, estimate in estimates.items()} | first
                if column.better and estimates:
                    wins.update(supported(among_best(column, estimates), estimates))
    ranks: dict[str, tuple[int, float]] = {}
    for named in lines(summarize(results, Table("", ()))).values():
        for name, row in named.items():
            better, higher = ranks.get(name, (0, 0.0))
            ranks[name] = better - wins[row.cell.group], higher - first.get(row.cell.group, 0.0)
    ranks.pop(base(results), None)
    others = sorted(ranks, key=lambda name: ranks[name])
    chosen = others if len(others) <= len(COLORS) else others[:BRIGHT]
    return dict(zip(chosen, COLORS, strict=False)) | {base(results): INK}


def legend(results: Results) -> str:
    """The sentence of a caption on which lines are in color."""
    judged = any(column.better for table in results.experiment.tables for column in table.columns)
    chosen = "most often among the best of a table's columns" if judged else "highest in the first table's first column"
    dashed = f"{base(results)}, dashed, and " if base(results) else ""
    return f" In color: {dashed}the rows {chosen}."


def arranged(figures: list[list[Figure]]) -> list[list[Figure]]:
    """The rows of figures as given; joined into one row if each has a single figure."""
    return figures if max(map(len, figures)) > 1 else [[figure for row in figures for figure in row]]


def base(results: Results) -> str:
    """The baseline encoding of the first table that has one; an empty string if none has."""
    return next((table.against for table in results.experiment.tables if table.against), "")


def first_runs(results: Results) -> dict[str, dict[str, CellFolder]]:
    """The first trained cell of each table row, grouped and named as the lines of figures are."""
    first: dict[tuple[object, ...], CellFolder] = {}
    for cell, folder in results.trained:
        first.setdefault(cell.group, folder)
    found = {
        group: {name: first[row.cell.group] for name, row in rows.items() if row.cell.group in first}
        for group, rows in lines(summarize(results, Table("", ()))).items()
    }
    return {group: runs for group, runs in found.items() if runs}

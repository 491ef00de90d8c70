"""Which rows share a figure, under which names and in which colours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from vitpos.analysis.figures import COLOURS, INK
from vitpos.cells import Table
from vitpos.report.advice import among_best
from vitpos.store import Folder
from vitpos.summary import Row, grouped, labels, summarise

BRIGHT = 6  # rows in colour where there are more rows than colours


def panels(rows: Sequence[Row]) -> dict[str, dict[str, Row]]:
    """Rows that a figure may compare, by what tells them from other figures' and by what tells them from each other.

    A figure is for rows that differ by their encoding alone; where no row has such company, for those of the same data.
    Rows without a number are left out, but change no name.
    """
    groups = grouped(rows)
    if len(groups) == len(rows):
        groups = {}
        for row in rows:
            groups.setdefault(f"trained on {row.cell.data}", []).append(row)
    named = {"" if len(groups) == 1 else name: _measured(group) for name, group in groups.items()}
    return {name: group for name, group in named.items() if group}


def _measured(rows: Sequence[Row]) -> dict[str, Row]:
    """The rows that have a number, by the labels that differ among all of them."""
    told = [name for name in labels(rows) if name == "encoding" or len({row.label(name) for row in rows}) > 1]
    return {
        " · ".join(map(row.label, told)): row
        for row in rows
        if not row.figures or any(figure.values for figure in row.figures)
    }


def colours(folder: Folder) -> dict[str, str]:
    """The colours of rows, the same on the whole page: of all if they are few, else of the row that tables compare with
    and of those most often among the best of a column (of equals, of those whose first number is highest).
    """
    names = {name for group in panels(summarise(folder, Table("", ()))).values() for name in group}
    wins: Counter[str] = Counter()
    first: dict[str, float] = {}
    for table in folder.experiment.tables:
        for group in panels(summarise(folder, table)).values():
            for number, column in enumerate(table.columns):
                figures = {name: row.figures[number] for name, row in group.items() if row.figures[number].values}
                first = {name: figure.mean for name, figure in figures.items()} | first
                wins.update(among_best(column, figures) if column.better and figures else ())
    others = sorted(names - {base(folder)}, key=lambda name: (-wins[name], -first.get(name, 0), name))
    chosen = others if len(others) <= len(COLOURS) else others[:BRIGHT]
    return dict(zip(chosen, COLOURS, strict=False)) | {base(folder): INK}


def base(folder: Folder) -> str:
    """The name of the row that tables compare with, if they do."""
    return next((table.against for table in folder.experiment.tables if table.against), "")

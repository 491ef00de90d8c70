"""Which rows share a figure, under which names."""

from __future__ import annotations

from collections.abc import Sequence

from vitpos.summary import Row, grouped, labels


def panels(rows: Sequence[Row]) -> dict[str, dict[str, Row]]:
    """Rows that a figure may compare, by what tells them from other figures' and by what tells them from each other.

    A figure is for rows that differ by their encoding alone; where no row has such company, for those of the same data.
    """
    groups = grouped(rows)
    if len(groups) == len(rows):
        groups = {}
        for row in rows:
            groups.setdefault(f"trained on {row.cell.data}", []).append(row)
    return {"" if len(groups) == 1 else name: _named(group) for name, group in groups.items()}


def _named(rows: Sequence[Row]) -> dict[str, Row]:
    return {" · ".join(filter(None, map(row.label, labels(rows)))): row for row in rows}

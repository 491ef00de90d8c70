"""Which encoding should I use? Sentences computed from the numbers of a table, and from nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from vitpos.analysis.intervals import paired
from vitpos.cells import Column, Table
from vitpos.summary import Figure, Row, seeds_of

MOST = 4  # names in a sentence


def advice(table: Table, rows: Sequence[Row]) -> Iterator[str]:
    """What a table says of the choice of an encoding: of each column that has a better end, then of all of them.

    Rows are judged among those of the same data, model and training. With several seeds, an encoding counts as being among
    the best of a column unless the 95 % interval of its difference from the best, seed by seed, leaves out 0.
    """
    groups: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.cell.data, row.cell.model, row.cell.swept), []).append(row)
    judged = [(number, column) for number, column in enumerate(table.columns) if column.better]
    for group in groups.values():
        if judged and len(group) > 1:
            yield from _of_group(group, judged, several=len(groups) > 1)


def _of_group(rows: Sequence[Row], judged: Sequence[tuple[int, Column]], *, several: bool) -> Iterator[str]:
    """The sentences on rows that differ by their encoding alone."""
    wins: Counter[str] = Counter()
    where = f"On {rows[0].cell.data} with {rows[0].cell.model}" if several else "Here"
    for number, column in judged:
        measured = {row.cell.encoding: row.figures[number] for row in rows if row.figures[number].values}
        if len(measured) < 2:
            continue
        best = (max if column.better == "more" else min)(measured, key=lambda name: measured[name].mean)
        near = [name for name in measured if name != best and _alike(measured[name], measured[best])]
        wins.update([best, *near])
        unit = " %" if column.percent else ""
        also = f"; not told apart from it by these seeds: {_listed(near)}" if near else ""
        yield f"{column.label}: {best} ({measured[best].text}{unit}){also}."
    if wins:
        most = max(wins.values())
        leaders = [name for name, count in wins.items() if count == most]
        verb = "is" if len(leaders) == 1 else "are"
        yield f"{where}, {_listed(leaders)} {verb} among the best in {most} of {len(judged)}."
    if seeds_of(rows) < 2:
        yield "One seed cannot tell a difference from noise: run more (--seeds 0,1,2) before choosing by small gaps."


def _alike(one: Figure, best: Figure) -> bool:
    """Whether seeds do not tell two figures apart; with one seed, only whether they are equal."""
    difference = paired(one.by_seed, best.by_seed)
    if difference is None:
        return False
    return difference.mean == 0 if difference.seeds < 2 else not difference.beyond_noise


def _listed(names: Sequence[str]) -> str:
    """A few names, and how many more there are."""
    shown = ", ".join(names[:MOST])
    return f"{shown} and {len(names) - MOST} more" if len(names) > MOST else shown

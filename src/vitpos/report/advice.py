"""Which encoding should I use? Sentences computed from the numbers of a table, and from nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from vitpos.lab.cells import Column, Table
from vitpos.lab.summary import Estimate, Row, format_estimate, grouped
from vitpos.metrics.statistics import paired_difference

MOST = 4  # names in a sentence
Name = TypeVar("Name")


def advice(table: Table, rows: Sequence[Row]) -> Iterator[tuple[str, list[str]]]:
    """What a table says of the choice of an encoding: of each column that has a better end, then of all of them;
    before it, what the seeds do not allow to say.

    Rows are judged among those of the same data, model and training: for each such group, what tells it from the others,
    and its sentences. With several seeds, an encoding counts as being among the best of a column unless the 95 % interval
    of its difference from the best, seed by seed, leaves out 0; where the two share one seed or none, there is no such
    interval and nothing is told apart.
    """
    judged = [(number, column) for number, column in enumerate(table.columns) if column.better]
    for name, group in grouped(rows).items():
        if sentences := list(_of_group(group, judged)):
            yield name, sentences


def _of_group(rows: Sequence[Row], judged: Sequence[tuple[int, Column]]) -> Iterator[str]:
    """The sentences on rows that differ by their encoding alone."""
    measured = [
        (column, {row.cell.encoding: row.estimates[number] for row in rows if row.estimates[number].values})
        for number, column in judged
    ]
    compared = [(column, estimates) for column, estimates in measured if len(estimates) > 1]
    yield from _warning([estimates for _, estimates in compared])
    wins: Counter[str] = Counter()
    counted = 0
    for column, estimates in compared:
        best, *near = among_best(column, estimates)
        wins.update(supported([best, *near], estimates))
        counted += bool(supported([best], estimates))
        unit = " %" if column.percent else ""
        also = f"; not told apart from it by these seeds: {_listed(near)}" if near else ""
        yield f"{column.label}: {best} ({format_estimate(estimates[best])}{unit}){also}."
    if wins:
        most = max(wins.values())
        leaders = [name for name, count in wins.items() if count == most]
        verb = "is" if len(leaders) == 1 else "are"
        yield f"In all, {_listed(leaders)} {verb} among the best in {most} of {counted}."


def _warning(compared: Sequence[Mapping[str, Estimate]]) -> Iterator[str]:
    """What a reader must know if some estimate that was compared has one seed."""
    everyone = dict.fromkeys(name for estimates in compared for name in estimates)
    alone = [name for name in everyone if any(name in f and len(f[name].values) == 1 for f in compared)]
    if alone:
        whose = "" if len(alone) == len(everyone) else f" (so far the case of {_listed(alone)})"
        remedy = "run more (--seeds 0,1,2) before choosing by small gaps"
        yield f"One seed cannot tell a difference from noise{whose}: {remedy}."


def among_best(column: Column, measured: Mapping[Name, Estimate]) -> list[Name]:
    """The name of the best estimate of a column, and of those that its seeds do not tell apart from it."""
    best = (max if column.better == "more" else min)(measured, key=lambda name: measured[name].mean)
    several = any(len(estimate.values) > 1 for estimate in measured.values())
    near = [name for name in measured if name != best and _alike(measured[name], measured[best], several=several)]
    return [best, *near]


def supported(names: Sequence[Name], measured: Mapping[Name, Estimate]) -> list[Name]:
    """Those of some names that share several seeds with the first: what one seed does not tell apart is no merit.

    Where nobody has several, all of them.
    """
    several = any(len(estimate.values) > 1 for estimate in measured.values())
    seeds = measured[names[0]].by_seed.keys()
    return [name for name in names if not several or len(measured[name].by_seed.keys() & seeds) > 1]


def _alike(one: Estimate, best: Estimate, *, several: bool) -> bool:
    """Whether seeds do not tell two estimates apart; where nobody has several of them, whether they are equal."""
    if not several:
        return one.mean == best.mean
    difference = paired_difference(one.by_seed, best.by_seed)
    return difference is None or not difference.significant


def _listed(names: Sequence[str]) -> str:
    """A few names, and how many more there are."""
    shown = ", ".join(names[:MOST])
    return f"{shown} and {len(names) - MOST} more" if len(names) > MOST else shown

"""The section "Which should I use?": sentences computed from the numbers of one table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from vitpos.lab.cells import Column, Table
from vitpos.lab.summary import Estimate, Row, format_estimate, grouped
from vitpos.metrics.statistics import paired_difference

MOST = 4  # names listed in one sentence
Name = TypeVar("Name")


def advice(table: Table, rows: Sequence[Row]) -> Iterator[tuple[str, list[str]]]:
    """Yields (heading, sentences) for each group of rows with the same data, model and training.

    The sentences are a warning if some rows have one seed, the best encoding of each column that has a ``better``
    direction, and a count over these columns. Two encodings differ in a column if the 95 % interval of their paired
    difference over common seeds excludes 0; a column in which no encoding differs from the best is reported as "no
    difference found". With one seed per encoding nothing can be tested: values are ranked, and the warning comes first.
    """
    judged = [(number, column) for number, column in enumerate(table.columns) if column.better]
    for name, group in grouped(rows).items():
        if sentences := list(_of_group(group, judged)):
            yield name, sentences


def _of_group(rows: Sequence[Row], judged: Sequence[tuple[int, Column]]) -> Iterator[str]:
    """Yields the sentences on rows that differ only in their encoding."""
    measured = [
        (column, {row.cell.encoding: row.estimates[number] for row in rows if row.estimates[number].values})
        for number, column in judged
    ]
    compared = [(column, estimates) for column, estimates in measured if len(estimates) > 1]
    yield from _warning([estimates for _, estimates in compared])
    wins: Counter[str] = Counter()
    tested = different = 0  # columns that can be tested, and those of them in which some encoding differs from the best
    one_seed = not any(_several(estimates) for _, estimates in compared)
    for column, estimates in compared:
        best, *near = among_best(column, estimates)
        yield _column_sentence(column, estimates, best, near)
        others = [name for name in estimates if name != best]
        if (one_seed or _several(estimates)) and len(supported([best, *others], estimates)) > 1:
            tested += 1
            if len(near) < len(others):
                different += 1
                wins.update(supported([best, *near], estimates))
    if different:
        yield _total(wins, different, {name for _, estimates in compared for name in estimates}, one_seed=one_seed)
    elif tested > 1:
        yield f"In total: no difference found in any of the {tested} columns."


def _column_sentence(column: Column, estimates: Mapping[str, Estimate], best: str, near: Sequence[str]) -> str:
    """The best encoding of a column and those ``near`` it, which do not differ from it significantly."""
    extreme = "highest" if column.better == "more" else "lowest"
    value = f"{format_estimate(estimates[best])}{' %' if column.percent else ''}"
    testable = supported([best, *near], estimates)[1:]
    too_few = [name for name in near if name not in testable]
    if len(near) == len(estimates) - 1 and testable:
        equal = len({estimate.mean for estimate in estimates.values()}) == 1
        text = "no difference found; " + ("all means are equal" if equal else f"{extreme} mean: {best} ({value})")
    elif not _several(estimates):
        text = f"{extreme} value: {best} ({value})" + (f"; the same value: {_listed(near)}" if near else "")
    elif len(near) == len(estimates) - 1:
        text = f"{extreme} mean: {best} ({value})"
    else:
        text = f"{best} ({value})" + (f"; no difference found between it and {_listed(testable)}" if testable else "")
    text += f"; too few common seeds to compare it with {_listed(too_few)}" if too_few else ""
    return f"{column.label}: {text}."


def _total(wins: Mapping[str, int], different: int, encodings: set[str], *, one_seed: bool) -> str:
    """The encodings most often among the best, of the ``different`` columns in which some encoding is not."""
    most = max(wins.values())
    leaders = [name for name, count in wins.items() if count == most]
    kind = "whose values differ (one seed)" if one_seed else "with a difference"
    columns = f"{most} of {different} {'column' if different == 1 else 'columns'} {kind}"
    if set(leaders) == encodings:
        return f"In total: no encoding is ahead; each is among the best in {columns}."
    return f"In total: {_listed(leaders)} {'is' if len(leaders) == 1 else 'are'} among the best in {columns}."


def _several(estimates: Mapping[Name, Estimate]) -> bool:
    """Whether any of the estimates has more than one seed."""
    return any(len(estimate.values) > 1 for estimate in estimates.values())


def _warning(compared: Sequence[Mapping[str, Estimate]]) -> Iterator[str]:
    """Yields a warning if some estimate that is compared comes from one seed."""
    everyone = dict.fromkeys(name for estimates in compared for name in estimates)
    alone = [name for name in everyone if any(name in e and len(e[name].values) == 1 for e in compared)]
    if alone:
        which = "" if len(alone) == len(everyone) else f" (only one so far: {_listed(alone)})"
        remedy = "run more seeds (--seeds 0,1,2) before choosing by small differences"
        yield f"One seed cannot separate a difference from noise{which}: {remedy}."


def among_best(column: Column, measured: Mapping[Name, Estimate]) -> list[Name]:
    """Names of the best estimate of a column and of those that do not differ from it significantly, best first."""
    best = (max if column.better == "more" else min)(measured, key=lambda name: measured[name].mean)
    several = _several(measured)
    near = [name for name in measured if name != best and _alike(measured[name], measured[best], several=several)]
    return [best, *near]


def supported(names: Sequence[Name], measured: Mapping[Name, Estimate]) -> list[Name]:
    """The names whose estimates have at least two seeds in common with the first; all if every estimate has one seed."""
    several = _several(measured)
    seeds = measured[names[0]].by_seed.keys()
    return [name for name in names if not several or len(measured[name].by_seed.keys() & seeds) > 1]


def _alike(one: Estimate, best: Estimate, *, several: bool) -> bool:
    """Whether the paired difference is not significant; without ``several`` seeds, whether the values are equal."""
    if not several:
        return one.mean == best.mean
    difference = paired_difference(one.by_seed, best.by_seed)
    return difference is None or not difference.significant


def _listed(names: Sequence[str]) -> str:
    """The first names, and the number of the others."""
    shown = ", ".join(names[:MOST])
    return f"{shown} and {len(names) - MOST} more" if len(names) > MOST else shown

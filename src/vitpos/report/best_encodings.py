"""Finds the encodings that are best in each column of a table, given the noise of seeds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from vitpos.lab.summary import Estimate, Row, grouped
from vitpos.lab.tables import Column, Table
from vitpos.metrics.statistics import paired_difference


@dataclass(frozen=True)
class ColumnComparison:
    """The encodings in one column of a result table, compared with the best of them over common seeds.

    Two encodings differ if the 95 % interval of their paired difference excludes 0; with one seed per encoding nothing
    can be tested, and all unequal values count as different.

    Args:
        estimates: Encoding → its values in the column, by seed, with their mean.
        best: The encoding with the best mean.
        tied: Encodings that do not differ from the best.
        untested: Encodings with fewer than two seeds in common with the best.
    """

    column: Column
    estimates: Mapping[str, Estimate]
    best: str
    tied: tuple[str, ...]
    untested: tuple[str, ...]

    @property
    def has_seeds(self) -> bool:
        """Whether any encoding has more than one seed, so that differences can be tested."""
        return any(len(estimate.values) > 1 for estimate in self.estimates.values())

    @property
    def num_different(self) -> int:
        """Number of encodings that differ significantly from the best."""
        return len(self.estimates) - 1 - len(self.tied) - len(self.untested)

    @property
    def equal(self) -> bool:
        """Whether all encodings have the same mean."""
        return len({estimate.mean for estimate in self.estimates.values()}) == 1


@dataclass(frozen=True)
class GroupComparison:
    """The comparisons in all columns of table rows that differ only in their encoding.

    Args:
        name: Settings that the rows share, such as their model; empty if the table has one group.
        columns: One comparison per column.
        num_tested: Number of columns in which at least one encoding could be compared with the best.
        num_different: Number of these columns in which some encoding differs from the best.
        leaders: Encodings that are best, or tied with the best, in the largest number of the ``num_different`` columns.
        num_wins: Number of columns in which each leader is best or tied.
    """

    name: str
    columns: tuple[ColumnComparison, ...]
    num_tested: int
    num_different: int
    leaders: tuple[str, ...]
    num_wins: int

    @property
    def encodings(self) -> list[str]:
        """Names of all encodings that have a value in some column."""
        return list(dict.fromkeys(name for one in self.columns for name in one.estimates))

    @property
    def single_seed(self) -> list[str]:
        """Names of the encodings that have only one seed in some column."""
        return [
            name
            for name in self.encodings
            if any(name in one.estimates and len(one.estimates[name].values) == 1 for one in self.columns)
        ]

    @property
    def has_seeds(self) -> bool:
        """Whether any encoding has more than one seed, so that differences can be tested."""
        return any(one.has_seeds for one in self.columns)


def compare_encodings(table: Table, rows: Sequence[Row]) -> Iterator[GroupComparison]:
    """Yields a comparison of encodings for each group of table rows with the same data, model and training.

    Considers the columns that have a ``better`` direction and at least two measured encodings.
    """
    for name, group in grouped(rows).items():
        compared = [
            compare_column(column, estimates)
            for number, column in enumerate(table.columns)
            if column.better and len(estimates := _measured(group, number)) > 1
        ]
        if compared:
            yield _summarize(name, compared)


def compare_column(column: Column, estimates: Mapping[str, Estimate]) -> ColumnComparison:
    """Compares all encodings of a table column with the one that has the best mean.

    Args:
        column: The column, which gives whether higher or lower is better.
        estimates: Encoding → its values in the column, by seed.
    """
    best = (max if column.better == "higher" else min)(estimates, key=lambda name: estimates[name].mean)
    others = {name: paired_difference(estimates[name].by_seed, estimates[best].by_seed) for name in estimates}
    del others[best]
    if all(len(estimate.values) == 1 for estimate in estimates.values()):
        equal = tuple(name for name in others if estimates[name].mean == estimates[best].mean)
        return ColumnComparison(column, estimates, best, equal, ())
    tested = {name: difference for name, difference in others.items() if difference and difference.seeds > 1}
    tied = tuple(name for name, difference in tested.items() if not difference.significant)
    return ColumnComparison(column, estimates, best, tied, tuple(name for name in others if name not in tested))


def _measured(rows: Sequence[Row], number: int) -> dict[str, Estimate]:
    """Returns encoding → estimate in the column with index ``number``; rows without a value there are left out."""
    return {row.cell.encoding: row.estimates[number] for row in rows if row.estimates[number].values}


def _summarize(name: str, columns: Sequence[ColumnComparison]) -> GroupComparison:
    """Returns the GroupComparison of several columns.

    Counts the columns in which encodings differ, and how often each encoding is best, or tied with the best, in them.

    Args:
        name: settings that the compared rows share, such as their model.
        columns: one comparison per column.
    """
    has_seeds = any(one.has_seeds for one in columns)
    testable = [one for one in columns if one.has_seeds or not has_seeds]
    tested = [one for one in testable if one.tied or one.num_different]
    different = [one for one in tested if one.num_different]
    wins = Counter(name for one in different for name in (one.best, *one.tied))
    most = max(wins.values(), default=0)
    leaders = tuple(encoding for encoding, count in wins.items() if count == most)
    return GroupComparison(name, tuple(columns), len(tested), len(different), leaders, most)

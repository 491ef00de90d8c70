"""Compares table rows: finds the best encodings of each column given the noise of seeds, and groups rows into figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from vitpos.lab.cell_folder import CellFolder
from vitpos.lab.results import Results
from vitpos.lab.summary import Estimate, Row, grouped, labels, summarize
from vitpos.lab.tables import Column, Table
from vitpos.metrics.statistics import paired_difference
from vitpos.plotting import COLORS, INK

NUM_COLORED = 6  # rows drawn in color if there are more rows than colors
Item = TypeVar("Item")


@dataclass(frozen=True)
class ColumnComparison:
    """The encodings in one column of a result table, compared with the best of them over common seeds.

    Two encodings differ if the 95 % interval of their paired difference excludes 0; with one seed per encoding nothing
    can be tested, and all unequal values count as different.

    Args:
        estimates: The measured encodings, by name.
        best: The encoding with the best mean.
        tied: Encodings that do not differ from it.
        untested: Encodings with fewer than two seeds in common with it.
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
        num_tested: Number of columns in which an encoding could be tested.
        num_different: Number of these in which some encoding differs from the best.
        leaders: Encodings that are most often best or tied in columns with a difference.
        num_wins: How often they are.
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
    """Compares all encodings of a column with the one that has the best mean; ``estimates`` are their numbers by name."""
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
    """Returns the estimates in column ``number`` that have values, by encoding."""
    return {row.cell.encoding: row.estimates[number] for row in rows if row.estimates[number].values}


def _summarize(name: str, columns: Sequence[ColumnComparison]) -> GroupComparison:
    """Combines column comparisons: counts columns with a difference, and how often each encoding is best there."""
    has_seeds = any(one.has_seeds for one in columns)
    testable = [one for one in columns if one.has_seeds or not has_seeds]
    tested = [one for one in testable if one.tied or one.num_different]
    different = [one for one in tested if one.num_different]
    wins = Counter(name for one in different for name in (one.best, *one.tied))
    most = max(wins.values(), default=0)
    leaders = tuple(encoding for encoding, count in wins.items() if count == most)
    return GroupComparison(name, tuple(columns), len(tested), len(different), leaders, most)


def figure_groups(rows: Sequence[Row], *, shared: int = 0) -> dict[str, dict[str, Row]]:
    """Groups table rows into figures: title of the figure → name of the row in it → row.

    A figure holds rows that differ only in their encoding. It holds all rows with the same data set instead if there are at
    most ``shared`` of them, or if every figure would have a single row. Rows without a number are left out.
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
    """Groups table rows into line charts; all rows with the same data set share a chart if there are enough colors."""
    return figure_groups(rows, shared=len(COLORS))


def all_rows(results: Results) -> list[Row]:
    """Returns a row for each model of the experiment (its seeds combined), without numbers: only its settings."""
    return summarize(results, Table("", ()))


def row_colors(results: Results) -> dict[str, str]:
    """Returns line colors by name of the row, the same in all figures of the page.

    All rows have a color if there are enough. Otherwise only the baseline and the six best rows have one, ranked by their
    mean in the first column of the first table that shows them; the others are drawn in gray.
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
    """Arranges figures on the page: joins rows of one figure each into a single row; otherwise returns them unchanged."""
    return figures if max(map(len, figures)) > 1 else [[figure for row in figures for figure in row]]


def baseline_encoding(results: Results) -> str:
    """Returns the baseline encoding of the first table that has one, such as ``learned``; an empty string if none has."""
    return next((table.baseline for table in results.experiment.tables if table.baseline), "")


def first_seed_folders(results: Results) -> dict[str, dict[str, CellFolder]]:
    """Returns the folder of the first trained seed of each model: title of the figure → name of the model → folder.

    Titles and names are those of `line_groups`.
    """
    first: dict[tuple[object, ...], CellFolder] = {}
    for cell, folder in results.trained:
        first.setdefault(cell.group, folder)
    found = {
        group: {name: first[row.cell.group] for name, row in rows.items() if row.cell.group in first}
        for group, rows in line_groups(all_rows(results)).items()
    }
    return {group: folders for group, folders in found.items() if folders}

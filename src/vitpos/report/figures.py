"""The figures of the report page; each is drawn if the stored runs hold the data for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from matplotlib.figure import Figure

from vitpos import plotting as draw
from vitpos.errors import InputError, RunError
from vitpos.inspection.table_stats import cosine_similarity
from vitpos.lab.results import Results
from vitpos.lab.summary import Row, labels, summarize
from vitpos.lab.table_text import format_number
from vitpos.lab.tables import Column
from vitpos.report.attack_figures import attacks, trajectories
from vitpos.report.best_encodings import compare_column
from vitpos.report.curves import curves, training_curves
from vitpos.report.figure_groups import all_rows, as_rows, figure_groups, first_seed_folders

Section = tuple[str, str, Figure | list[list[Figure]] | None]  # title, caption, figure or rows of figures


def figures(results: Results) -> Iterator[Section]:
    """Yields all figures of an experiment's report page in order, as (title, caption, figure or rows of figures).

    For a figure whose stored files are damaged, the caption is the error message and the figure is None.
    """
    for section in SECTIONS:
        try:
            yield from section(results)
        except (InputError, RunError) as error:
            yield "Figure not available", f"{error}.", None


def _bar_chart(results: Results) -> Iterator[Section]:
    """Yields (title, caption, bar chart) of all tables with ``bar_chart = true``, if there are any.

    There is a group of bars per percent column and training set, and in it a bar per row.
    """
    groups: dict[str, dict[str, tuple[float, float, float | None]]] = {}  # mean, standard deviation, published
    names = [name for name in labels(all_rows(results)) if name != "trained on"]
    for table in results.experiment.tables:
        rows = summarize(results, table) if table.bar_chart else []
        several = len({row.cell.data for row in rows}) > 1
        for row in rows:
            for column, estimate in zip(table.columns, row.estimates, strict=True):
                if column.percent and estimate.values:
                    trained_on = "\ntrained on " + row.cell.data.replace(" + ", " +\n") if several else ""
                    published = None if estimate.published is None else 100 * estimate.published
                    bar = 100 * estimate.mean, 100 * estimate.std, published
                    groups.setdefault(column.label + trained_on, {})[" · ".join(map(row.label, names))] = bar
    if groups:
        note = "Mean over seeds; with several seeds, error bars are ± one standard deviation."
        yield "Percentages by protocol", note, draw.bars(groups, label="%")


def _heatmaps(results: Results) -> Iterator[Section]:
    """Yields (title, caption, heat map) of each table with ``heatmap = true``, one per group of its rows.

    Rows of a group differ only in their encoding (see `figure_groups`). Each column has its own color scale.
    """
    for table in results.experiment.tables if results.trained else ():
        rows = [row for row in summarize(results, table) if row.has_values]
        for group, named in figure_groups(rows).items() if table.heatmap else ():
            values = [[e.mean if e.values else np.nan for e in row.estimates] for row in named.values()]
            texts = [
                [format_number(e.mean, percent=e.percent, short=True) if e.values else "–" for e in row.estimates]
                for row in named.values()
            ]
            signs = [_sign(column, named.values(), number) for number, column in enumerate(table.columns)]
            headings = [column.label for column in table.columns]
            note = (
                "Each column has its own scale, from the worst value (pale) to the best (dark); it is gray if neither "
                "direction is better, or if no row differs significantly from the best."
            )
            title = " · ".join(filter(None, (f"At a glance: {table.title}", group)))
            yield title, note, draw.heatmap(list(named), headings, np.array(values), texts, signs)


def _sign(column: Column, rows: Iterable[Row], number: int) -> int:
    """Returns 1 if higher values are better in a column, −1 if lower values are, 0 if neither.

    Also returns 0 if no row differs significantly from the best. ``number`` is the index of the column in the rows.
    """
    estimates = {str(n): row.estimates[number] for n, row in enumerate(rows) if row.estimates[number].values}
    if not column.better or not estimates or not compare_column(column, estimates).num_different:
        return 0
    return 1 if column.better == "higher" else -1


def _scatter_plots(results: Results) -> Iterator[Section]:
    """Yields (title, caption, scatter plot) of each table with ``scatter = true``.

    It shows the second column against the first, with a point per row.
    """
    for table in results.experiment.tables:
        rows = summarize(results, table) if table.scatter else []
        points = {}
        for row in rows:
            if all(estimate.values for estimate in row.estimates[:2]):
                across, up = (e.mean * (100 if e.percent else 1) for e in row.estimates[:2])
                points[" · ".join(filter(None, map(row.label, labels(rows))))] = across, up
        if points:
            x, y = (f"{column.label}{', %' if column.percent else ''}" for column in table.columns[:2])
            note = "One point per row: the mean over its seeds."
            yield f"{table.title}: {y} against {x}", note, draw.scatter(points, x=x, y=y)


def _samples(results: Results) -> Iterator[Section]:
    """Yields (title, caption, figure) with test images of each data set, one per class, of at most ten classes."""
    strips: dict[str, np.ndarray] = {}
    for cell, folder in results.trained:
        if cell.data not in strips:
            strips[cell.data] = folder.load_samples().permute(0, 2, 3, 1).numpy()
    note = "The first test image of each class, of at most ten classes, for every data set of this run."
    yield "Test images", note, draw.image_strips(strips)


def _confusions(results: Results) -> Iterator[Section]:
    """Yields (title, caption, figure) per data set with the confusion matrix of each model, mean over seeds."""
    found: dict[str, dict[str, list[np.ndarray]]] = {}  # data → model → a matrix per seed
    classes: dict[str, tuple[str, ...]] = {}
    for cell, folder in results.trained:
        if "confusion" in results.of(cell):
            classes.setdefault(cell.data, folder.classes)
            matrix = folder.load_result("confusion").arrays["confusion"].numpy()
            found.setdefault(cell.data, {}).setdefault(f"{cell.model} · {cell.label}", []).append(matrix)
    for data, models in found.items():
        note = "Rows: true class. Columns: predicted class, in percent of the row (below 0.5 not printed)."
        means = {name: np.mean(matrices, 0) for name, matrices in models.items()}
        yield f"Confusion matrices, {data}", note, draw.confusion_matrices(means, classes[data])


def _similarities(results: Results) -> Iterator[Section]:
    """Yields (title, caption, rows of figures) with maps of the cosine similarity between position vectors.

    There is a figure for each model (first seed) that adds position vectors to its tokens.
    """
    drawn: list[list[Figure]] = []
    for group, folders in first_seed_folders(results).items():
        drawn.append([])
        for name, folder in folders.items():
            table = folder.load_position_table()
            if table is not None:
                title = "\n".join(filter(None, (group, name)))
                rows, columns, _ = table.shape
                similarity = cosine_similarity(table.flatten(0, 1)).numpy()
                drawn[-1].append(draw.tiled_maps(similarity, (rows, columns), title=title))
    if any(drawn):
        note = "A small map per position (white dot): cosine similarity of its vector with that of each other position."
        yield "Position similarity", f"{note} First seed.", as_rows(drawn)


SECTIONS = (
    _heatmaps,
    _scatter_plots,
    _bar_chart,
    curves,
    attacks,
    trajectories,
    _samples,
    _confusions,
    _similarities,
    training_curves,
)

"""The figures of the report page; each is drawn if the stored runs hold the data for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from matplotlib.figure import Figure

from vitpos import plotting as draw
from vitpos.errors import InputError, RunError
from vitpos.inspection.table_stats import cosine_similarity
from vitpos.lab.cells import Cell, Column
from vitpos.lab.results import Results
from vitpos.lab.summary import Estimate, Row, format_number, labels, summarize
from vitpos.report.attack_figures import attacks, trajectories
from vitpos.report.comparison import (
    all_rows,
    as_rows,
    baseline_encoding,
    color_note,
    compare_column,
    figure_groups,
    first_seed_folders,
    row_colors,
)
from vitpos.report.curves import curves

Section = tuple[str, str, Figure | list[list[Figure]] | None]  # title, caption, figure or rows of figures


def figures(results: Results) -> Iterator[Section]:
    """Yields all figures in the order of the page; an error message in place of a figure whose files are damaged."""
    for section in SECTIONS:
        try:
            yield from section(results)
        except (InputError, RunError) as error:
            yield "Figure not available", f"{error}.", None


def _bar_chart(results: Results) -> Iterator[Section]:
    """Bar chart of the percentages of tables with ``bar_chart``: a group for each column and training set."""
    groups: dict[str, dict[str, Estimate]] = {}
    names = [name for name in labels(all_rows(results)) if name != "trained on"]
    for table in results.experiment.tables:
        rows = summarize(results, table) if table.bar_chart else []
        several = len({row.cell.data for row in rows}) > 1
        for row in rows:
            for column, estimate in zip(table.columns, row.estimates, strict=True):
                if column.percent and estimate.values:
                    trained_on = "\ntrained on " + row.cell.data.replace(" + ", " +\n") if several else ""
                    groups.setdefault(column.label + trained_on, {})[" · ".join(map(row.label, names))] = estimate
    if groups:
        note = "Mean over seeds; with several seeds, error bars are ± one standard deviation."
        yield (
            "Percentages by protocol",
            note,
            draw.bars({name: _percentages(group) for name, group in groups.items()}, label="%"),
        )


def _heatmaps(results: Results) -> Iterator[Section]:
    """Heat maps of tables with ``heatmap``: one for each group of comparable rows, each column on its own scale."""
    for table in results.experiment.tables if results.trained else ():
        rows = [row for row in summarize(results, table) if row.measured]
        for group, named in figure_groups(rows).items() if table.heatmap else ():
            values = [[e.mean if e.values else np.nan for e in row.estimates] for row in named.values()]
            texts = [[_short(e) for e in row.estimates] for row in named.values()]
            signs = [_sign(column, named.values(), number) for number, column in enumerate(table.columns)]
            headings = [column.label for column in table.columns]
            note = (
                "Each column has its own scale, from the worst value (pale) to the best (dark); it is gray if neither "
                "direction is better, or if no row differs significantly from the best."
            )
            title = " · ".join(filter(None, (f"At a glance: {table.title}", group)))
            yield title, note, draw.heatmap(list(named), headings, np.array(values), texts, signs)


def _short(estimate: Estimate) -> str:
    return format_number(estimate.mean, percent=estimate.percent, short=True) if estimate.values else "–"


def _sign(column: Column, rows: Iterable[Row], number: int) -> int:
    """1 if higher is better in a column, −1 if lower is; 0 if neither, or if no row differs significantly from the best."""
    estimates = {str(n): row.estimates[number] for n, row in enumerate(rows) if row.estimates[number].values}
    if not column.better or not estimates or not compare_column(column, estimates).num_different:
        return 0
    return 1 if column.better == "higher" else -1


def _scatter_plots(results: Results) -> Iterator[Section]:
    """Scatter plots of the first two columns of tables with ``scatter``."""
    for table in results.experiment.tables:
        rows = summarize(results, table) if table.scatter else []
        points = {}
        for row in rows:
            if all(estimate.values for estimate in row.estimates[:2]):
                name = " · ".join(filter(None, map(row.label, labels(rows))))
                across, up = (e.mean * (100 if e.percent else 1) for e in row.estimates[:2])
                points[name] = across, up
        if points:
            x, y = (f"{column.label}{', %' if column.percent else ''}" for column in table.columns[:2])
            yield (
                f"{table.title}: {y} against {x}",
                "One point per row: the mean over its seeds.",
                draw.scatter(points, x=x, y=y),
            )


def _percentages(group: dict[str, Estimate]) -> dict[str, tuple[float, float, float | None]]:
    """Mean, standard deviation and published value of each number of a group, in percent."""
    return {
        name: (100 * n.mean, 100 * n.std, None if n.published is None else 100 * n.published)
        for name, n in group.items()
    }


def _samples(results: Results) -> Iterator[Section]:
    """The first test images of each data set."""
    strips: dict[str, np.ndarray] = {}
    for cell, folder in results.trained:
        if cell.data not in strips:
            strips[cell.data] = folder.load_samples().permute(0, 2, 3, 1).numpy()
    yield (
        "Test images",
        "The first test image of each class, of at most ten classes, for every data set of this run.",
        draw.image_strips(strips),
    )


def _confusions(results: Results) -> Iterator[Section]:
    """Confusion matrices for each model and training set, mean over seeds."""
    found: dict[str, dict[str, list[np.ndarray]]] = {}  # data → model → a matrix per seed
    classes: dict[str, tuple[str, ...]] = {}
    for cell, folder in results.trained:
        if "confusion" in results.of(cell):
            classes.setdefault(cell.data, folder.classes)
            matrix = folder.load_result("confusion").arrays["confusion"].numpy()
            found.setdefault(cell.data, {}).setdefault(_model(cell), []).append(matrix)
    for data, models in found.items():
        note = "Rows: true class. Columns: predicted class, in percent of the row (below 0.5 not printed)."
        means = {name: np.mean(matrices, 0) for name, matrices in models.items()}
        yield f"Confusion matrices, trained on {data}", note, draw.confusion_matrices(means, classes[data])


def _similarities(results: Results) -> Iterator[Section]:
    """Cosine similarity of position vectors, for every stored table of the first seed."""
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
        note = (
            "One small map per position (white dot): cosine similarity of its vector and that of each other position."
        )
        yield "Position similarity", f"{note} First seed.", as_rows(drawn)


def _training_curves(results: Results) -> Iterator[Section]:
    """Training loss and accuracy by epoch, first seed."""
    drawn, colors = [], row_colors(results)
    found = {
        group: {name: run.log for name, run in runs.items()} for group, runs in first_seed_folders(results).items()
    }
    logs = {
        group: trained for group, named in found.items() if (trained := {n: log for n, log in named.items() if log})
    }
    for group, named in logs.items():
        pair = []
        for key, scale, label in (("loss", 1, "training loss"), ("accuracy", 100, "training accuracy, %")):
            points = {name: [(at["epoch"], scale * at[key], 0.0) for at in log] for name, log in named.items()}
            pair += draw.lines({group: points}, x="epoch", y=label, colors=colors, dashed=baseline_encoding(results))
        drawn.append(pair)
    gray = any(name not in colors for named in logs.values() for name in named)
    note = f"Mean over the training images of each epoch, first seed.{color_note(results) if gray else ''}"
    if drawn:
        yield "Training curves", note, drawn


def _model(cell: Cell) -> str:
    return f"{cell.model} · {cell.label}"


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
    _training_curves,
)

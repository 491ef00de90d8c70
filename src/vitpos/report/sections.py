"""The figures of a page, each made where the stored runs have what it needs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import torch
from matplotlib.figure import Figure

from vitpos import plotting as draw
from vitpos.cells import Cell, Column, Table
from vitpos.data import DATASETS, STORED
from vitpos.data.base import Dataset, load
from vitpos.errors import UserError, WorkError
from vitpos.inspection.table_stats import cosine_similarity, position_vectors
from vitpos.lab import restore
from vitpos.models.base import PatchClassifier
from vitpos.report.advice import among_best
from vitpos.report.curves import curves
from vitpos.report.groups import arranged, base, colours, first_runs, legend, panels
from vitpos.report.recovered import attacks, films
from vitpos.store import Folder
from vitpos.summary import Figure as Number
from vitpos.summary import Row, labels, summarise

Section = tuple[str, str, Figure | list[list[Figure]] | None]  # title, what it shows, the figure or rows of figures


def figures(folder: Folder) -> Iterator[Section]:
    """Everything there is to see, in the order of the page; what needs data that is gone says so."""
    for section in (_heat, _planes, _protocols, curves, attacks, films, _pictures, _confusions, _similarities, _curves):
        try:
            yield from section(folder)
        except (UserError, WorkError) as error:
            yield "A figure is left out", f"{error}.", None


def _data(spec: str) -> Dataset:
    """The data of a run if it is here: a page fetches nothing."""
    for term in DATASETS.parse(spec):
        if term.name in STORED and not STORED.load(term.name).present:
            raise WorkError(f"{term.name} is not here; fetch it with 'vitpos data get {term.name}' and report again")
    return load(spec)


def _protocols(folder: Folder) -> Iterator[Section]:
    """The percentages of the tables that ask for a chart: a group for each column and training set."""
    groups: dict[str, dict[str, Number]] = {}
    told = [name for name in labels(summarise(folder, Table("", ()))) if name != "trained on"]
    for table in folder.experiment.tables:
        rows = summarise(folder, table) if table.chart else []
        several = len({row.cell.data for row in rows}) > 1
        for row in rows:
            for column, figure in zip(table.columns, row.figures, strict=True):
                if column.percent and figure.values:
                    trained_on = "\ntrained on " + row.cell.data.replace(" + ", " +\n") if several else ""
                    groups.setdefault(column.label + trained_on, {})[" · ".join(map(row.label, told))] = figure
    if groups:
        note = "Mean, and the standard deviation over seeds where there are several."
        yield (
            "Accuracy by protocol",
            note,
            draw.bars({name: _percentages(group) for name, group in groups.items()}, label="%"),
        )


def _heat(folder: Folder) -> Iterator[Section]:
    """The tables that ask for it as maps of colours, one for rows that can be compared, each column by itself."""
    for table in folder.experiment.tables if folder.runs else ():
        rows = [row for row in summarise(folder, table) if any(figure.values for figure in row.figures)]
        for group, named in panels(rows).items() if table.heat else ():
            values = [[figure.mean if figure.values else np.nan for figure in row.figures] for row in named.values()]
            texts = [[figure.short for figure in row.figures] for row in named.values()]
            signs = [_sign(column, named.values(), number) for number, column in enumerate(table.columns)]
            headings = [column.label for column in table.columns]
            note = (
                "Each column by itself, from its worst (pale) to its best (dark); grey where neither end is better, "
                "or where the seeds tell nobody from the best."
            )
            title = " · ".join(filter(None, (f"At a glance: {table.title}", group)))
            yield title, note, draw.heatmap(list(named), headings, np.array(values), texts, signs)


def _sign(column: Column, rows: Iterable[Row], number: int) -> int:
    """Whether more (1) or less (−1) is better in a column; 0 where neither is, or where its seeds tell nobody apart."""
    figures = dict(enumerate(row.figures[number] for row in rows if row.figures[number].values))
    told = bool(column.better) and len(among_best(column, figures)) < len(figures)
    return {"more": 1, "less": -1, "": 0}[column.better] if told else 0


def _planes(folder: Folder) -> Iterator[Section]:
    """The first two columns of the tables that ask for it, one against the other."""
    for table in folder.experiment.tables:
        rows = summarise(folder, table) if table.plane else []
        points = {}
        for row in rows:
            if all(figure.values for figure in row.figures[:2]):
                name = " · ".join(filter(None, map(row.label, labels(rows))))
                across, up = (figure.mean * (100 if figure.percent else 1) for figure in row.figures[:2])
                points[name] = across, up
        if points:
            x, y = (f"{column.label}{', %' if column.percent else ''}" for column in table.columns[:2])
            yield (
                f"{table.title}: {x} and {y}",
                "A point for each row, mean over its seeds.",
                draw.scatter(points, x=x, y=y),
            )


def _percentages(group: dict[str, Number]) -> dict[str, tuple[float, float, float | None]]:
    """Mean, deviation and reference of each number of a group, in percent."""
    return {
        name: (100 * n.mean, 100 * n.deviation, None if n.reference is None else 100 * n.reference)
        for name, n in group.items()
    }


def _pictures(folder: Folder) -> Iterator[Section]:
    """The same test images as each training set shows them."""
    strips: dict[str, np.ndarray] = {}
    for spec in dict.fromkeys(cell.data for cell, _ in folder.runs):
        data = _data(spec)
        found = [(data.test.labels == label).nonzero()[:1, 0] for label in range(len(data.classes))]
        strips[spec] = data.test.images[torch.cat(found)[:10]].permute(0, 2, 3, 1).numpy()
    yield (
        "What the models saw",
        "The first test image of each class (of ten at most), in every data set of this run.",
        draw.image_strips(strips),
    )


def _confusions(folder: Folder) -> Iterator[Section]:
    """What is taken for what: a matrix per model and training set, mean over seeds."""
    found: dict[str, dict[str, list[np.ndarray]]] = {}  # data → model → a matrix per seed
    for cell, run in folder.runs:
        if "confusion" in run.scores:
            numbers = np.array(list(run.scores["confusion"].values()))
            count = len(_data(cell.data).classes)
            found.setdefault(cell.data, {}).setdefault(_model(cell), []).append(numbers.reshape(count, count))
    for data, models in found.items():
        note = "Rows: what it is. Columns: what it is taken for, in percent of the row (below half a percent left out)."
        means = {name: np.mean(matrices, 0) for name, matrices in models.items()}
        yield f"Confusion, trained on {data}", note, draw.confusion_matrices(means, _data(data).classes)


def _similarities(folder: Folder) -> Iterator[Section]:
    """How alike the position vectors are, for every trained table of the first seed."""
    drawn: list[list[Figure]] = []
    missing: WorkError | None = None
    for group, runs in first_runs(folder).items():
        drawn.append([])
        try:
            for name, run in runs.items():
                _data(run.cell.data)
                model = restore(run)
                vectors = position_vectors(model) if isinstance(model, PatchClassifier) else torch.zeros(1)
                if isinstance(model, PatchClassifier) and vectors.any() and vectors.isfinite().all():
                    title = "\n".join(filter(None, (group, name)))
                    drawn[-1].append(
                        draw.tiled_maps(cosine_similarity(vectors).numpy(), model.geometry.grid, title=title)
                    )
        except WorkError as error:
            missing = error
    if any(drawn):
        note = "One small map for each place (white dot): the cosine of its position vector with every other place's."
        yield "Position similarity", f"{note} First seed.", arranged(drawn)
    if missing:
        raise missing


def _curves(folder: Folder) -> Iterator[Section]:
    """Loss and accuracy while training, first seed."""
    drawn, shade = [], colours(folder)
    found = {group: {name: run.log for name, run in runs.items()} for group, runs in first_runs(folder).items()}
    logs = {
        group: trained for group, named in found.items() if (trained := {n: log for n, log in named.items() if log})
    }
    for group, named in logs.items():
        pair = []
        for key, scale, label in (("loss", 1, "training loss"), ("accuracy", 100, "training accuracy, %")):
            points = {name: [(at["epoch"], scale * at[key], 0.0) for at in log] for name, log in named.items()}
            pair += draw.lines({group: points}, x="epoch", y=label, colors=shade, dashed=base(folder))
        drawn.append(pair)
    grey = any(name not in shade for named in logs.values() for name in named)
    note = f"Mean over the images of each epoch, first seed.{legend(folder) if grey else ''}"
    if drawn:
        yield "Training curves", note, drawn


def _model(cell: Cell) -> str:
    return f"{cell.model} · {cell.told}"

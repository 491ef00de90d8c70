"""The page: what it says comes from stored runs; how it looks is ``page.html`` beside this file."""

from __future__ import annotations

import base64
import html
import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jinja2
from matplotlib.figure import Figure

from vitpos.catalog import Catalog
from vitpos.cells import Column, Table
from vitpos.data import DATASETS
from vitpos.encodings import ENCODINGS
from vitpos.errors import UserError
from vitpos.experiment import Experiment
from vitpos.models import MODELS
from vitpos.plotting import svg
from vitpos.questions import QUESTIONS
from vitpos.report import sections
from vitpos.report.advice import advice
from vitpos.store import Folder, write_text
from vitpos.summary import compared, labels, measured, seeds_of, shared, summarise

CODE = re.compile(r"``(.+?)``")
METRICS = re.compile(r"(?:^|(?<=[.;)] ))([a-z]\w*(?:\.\d+)?(?:, \w+)*(?:, …| and so on)?):(?= )")  # "area: the …"


def write_report(folders: Iterable[Path], out: Path) -> Path:
    """Writes the page of some folders of experiments to ``out``."""
    if out.is_dir() or not out.name:
        raise UserError(f"--out {out} is a folder; give the page a name, as {out / 'report.html'}")
    opened = [Folder.open(Path(path)) for path in folders]
    for folder in opened:
        if not folder.runs:
            raise UserError(f"{folder.path} has no finished cell to report; finish it with 'vitpos run'")
    experiments = [_experiment(folder, number) for number, folder in enumerate(opened, 1)]
    return write_text(Path(out), template("page.html").render(experiments=experiments))


def template(name: str) -> jinja2.Template:
    """One of the pages beside this file, to be filled in."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=jinja2.StrictUndefined
    )
    return environment.get_template(name)


def _experiment(folder: Folder, number: int) -> dict[str, Any]:
    experiment = folder.experiment
    figures = [(title, note, _pictures(figure)) for title, note, figure in sections.figures(folder)]
    return {
        "number": number,
        "name": experiment.name,
        "question": experiment.question or experiment.name,
        "source": experiment.source,
        "notes": experiment.notes,
        "seeds": sorted({cell.seed for cell, _ in folder.runs}),
        "missing": len(folder.unfinished),
        "tables": [_table(folder, table) for table in experiment.tables],
        "others": _others(folder),
        "figures": figures,
        "definitions": _definitions(folder),
        "recipes": sorted({(cell.model, str(cell.train)) for cell, _ in folder.runs}),
        "machines": [dict(items) for items in dict.fromkeys(tuple(run.machine.items()) for _, run in folder.runs)],
        "command": command(experiment),
    }


def _table(folder: Folder, table: Table) -> dict[str, Any]:
    rows = summarise(folder, table)
    return {
        "table": table,
        "columns": [_column(column) for column in table.columns],
        "rows": rows,
        "labels": labels(rows),
        "shared": shared(rows),
        "seeds": seeds_of(rows),
        "compared": compared(table, rows),
        "advice": list(advice(table, rows)),
    }


def _others(folder: Folder) -> list[dict[str, Any]]:
    """What no table shows: for each evaluation a grid of headings and of rows, each a name and figures.

    Metrics go down where they are more than the rows of cells, else across.
    """
    found = []
    table = measured(folder)
    for evaluation in dict.fromkeys(column.evaluation for column in table.columns):
        columns = tuple(column for column in table.columns if column.evaluation == evaluation)
        rows = summarise(folder, replace(table, columns=columns))
        rows = [row for row in rows if any(figure.values for figure in row.figures)]
        if rows:
            metrics = [column.metric for column in columns]
            names = [" · ".join(map(row.label, labels(rows))) for row in rows]
            figures = [row.figures for row in rows]
            down = len(metrics) > len(names)
            grid = zip(metrics, zip(*figures, strict=True), strict=True) if down else zip(names, figures, strict=True)
            found.append(
                {
                    **_column(columns[0]),
                    "metrics": metrics,
                    "headings": names if down else metrics,
                    "rows": list(grid),
                    "shared": shared(rows),
                }
            )
    return found


def _column(column: Column) -> dict[str, str]:
    """What the page says of a column: its heading, where its numbers are from and where that is defined."""
    unit = ", %" if column.percent and not column.label.endswith("%") else ""
    return {
        "heading": column.label + unit,
        "evaluation": column.evaluation,
        "metric": column.metric,
        "defined": QUESTIONS.parse(column.evaluation)[0].name,
    }


def command(experiment: Experiment) -> str:
    """What makes the run again."""
    origin = experiment.origin
    words = ["vitpos", "run", origin["asked"], "--out", "DIR"]
    for setting in origin["settings"]:
        words += ["--set", setting]
    if origin["seeds"] is not None:
        words += ["--seeds", ",".join(map(str, origin["seeds"]))]
    return shlex.join(words)


def _definitions(folder: Folder) -> list[tuple[str, list[tuple[str, str]]]]:
    """What the sources say of every evaluation, data set, model and encoding in use, and of evaluations these refer to."""
    experiment = folder.experiment
    asked = [column.evaluation for table in experiment.tables for column in table.columns]
    used: list[tuple[str, Catalog, Sequence[str]]] = [
        ("Evaluations", QUESTIONS, [*asked, *(spec for _, run in folder.runs for spec in run.scores)]),
        ("Data", DATASETS, [cell.data for cell in experiment.cells]),
        ("Models", MODELS, [cell.model for cell in experiment.cells]),
        ("Encodings", ENCODINGS, [cell.encoding for cell in experiment.cells]),
    ]
    found = []
    for title, catalog, specs in used:
        names = list(dict.fromkeys(term.name for spec in specs for term in catalog.parse(spec)))
        for name in names:  # which grows
            names += [other for other in _mentioned(name) if other not in names] if catalog is QUESTIONS else []
        found.append((title, [(name, prose(catalog.describe(name).definition)) for name in names]))
    return found


def _mentioned(name: str) -> list[str]:
    """The evaluations that the definition of one refers to, as ``resolutions`` does to ``resolution``."""
    entry = QUESTIONS.describe(name)
    return [word for word in CODE.findall(entry.definition) if word in QUESTIONS and word not in entry.options]


def prose(docstring: str) -> str:
    """A docstring as HTML: paragraphs, what it defines in bold, code in code type."""
    paragraphs = [html.escape(" ".join(part.split()), quote=False) for part in docstring.split("\n\n")]
    marked = [CODE.sub(r"<code>\1</code>", METRICS.sub(r"<b>\1</b>:", part)) for part in paragraphs]
    return "".join(f"<p>{part}</p>" for part in marked)


def _pictures(figure: Figure | list[list[Figure]] | None) -> list[list[str]]:
    """A figure, or rows of figures, as addresses that hold the pictures themselves."""
    rows = figure if isinstance(figure, list) else [[figure]] if figure else []
    return [[f"data:image/svg+xml;base64,{base64.b64encode(svg(one)).decode()}" for one in row] for row in rows]

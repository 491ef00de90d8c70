"""Writes the report page: collects its content from stored runs and fills the template ``experiment.html``."""

from __future__ import annotations

import base64
import html
import json
import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jinja2
from matplotlib.figure import Figure

from vitpos.data import DATASETS
from vitpos.encodings import ENCODINGS
from vitpos.errors import InputError
from vitpos.evaluations import EVALUATIONS
from vitpos.files import write_text
from vitpos.lab import summary, table_text
from vitpos.lab.experiment import Experiment
from vitpos.lab.results import Results
from vitpos.lab.tables import Column, Table
from vitpos.models import MODELS
from vitpos.plotting import svg
from vitpos.printable import printable
from vitpos.registry import Registry
from vitpos.registry.descriptions import Description
from vitpos.report.best_encodings import compare_encodings
from vitpos.report.figures import figures

CODE = re.compile(r"``(.+?)``")
METRICS = re.compile(r"(?:^|(?<=[.;)] ))([a-z]\w*(?:, \w+)*(?: by \w+| and so on)?):(?= )")  # "auc: area …"


def write_report(sources: Iterable[Path | Results], out: Path) -> Path:
    """Writes an HTML page on one or more experiments, given by their folders or results, to ``out`` and returns that path.

    Only files in these folders are read: no model is built and no data set is loaded.
    """
    if out.is_dir() or not out.name:
        raise InputError(f"--out {out} is a folder; give the path of a file, such as {out / 'report.html'}")
    opened = [source if isinstance(source, Results) else Results.open(source) for source in sources]
    for results in opened:
        if not results.trained:
            raise InputError(f"{results.path} has no finished cell to report; finish it with 'vitpos run'")
    experiments = [_experiment(results, number) for number, results in enumerate(opened, 1)]
    every = {name for results in opened for name in results.evaluations}
    combined = table_text.instructions_text(opened, every) if len(opened) > 1 else ""
    page = template("experiment.html").render(experiments=experiments, instructions=combined)
    return write_text(Path(out), page)


def template(name: str) -> jinja2.Template:
    """Loads the Jinja template ``name``, such as ``experiment.html``, from the folder ``templates``.

    Values are escaped for HTML, except in Markdown (``.md``).
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=not name.endswith(".md"),
        trim_blocks=name.endswith(".md"),
        undefined=jinja2.StrictUndefined,
        finalize=lambda value: printable(value) if type(value) is str else value,  # no terminal escapes in the file
    )
    environment.filters["cell"] = _table_cell
    environment.globals |= {"format_number": table_text.format_number, "format_estimate": table_text.format_estimate}
    return environment.get_template(name)


def _table_cell(text: str) -> str:
    """Returns a text as it is written in a cell of a Markdown table."""
    return " ".join(text.split()).replace("|", "\\|")


def _experiment(results: Results, number: int) -> dict[str, Any]:
    experiment = results.experiment
    return {
        "number": number,
        "experiment": experiment,
        "seeds": sorted({cell.seed for cell, _ in results.trained}),
        "missing": len(results.pending),
        "tables": [_table(results, table) for table in experiment.tables],
        "others": _others(results),
        "figures": [(title, note, _data_urls(figure)) for title, note, figure in figures(results)],
        "definitions": _definitions(results),
        "recipes": sorted({(cell.model, str(cell.train)) for cell, _ in results.trained if not _is_foreign(results)}),
        "machines": [
            dict(items) for items in dict.fromkeys(tuple(folder.machine.items()) for _, folder in results.trained)
        ],
        "evaluated_with": _evaluated_with(results),
        "command": command(experiment),
    }


def _table(results: Results, table: Table) -> dict[str, Any]:
    rows = summary.summarize(results, table)
    return {
        "table": table,
        "columns": [_column(column) for column in table.columns],
        "rows": rows,
        "labels": summary.labels(rows),
        "shared": table_text.shared(rows),
        "seeds": summary.seeds_of(rows),
        "seeds_text": table_text.seeds_text(rows),
        "instructions": table_text.instructions_text([results], table_text.evaluations_of(table)),
        "legend": table_text.significance_legend(table, rows),
        "comparisons": list(compare_encodings(table, rows)),
    }


def _others(results: Results) -> list[dict[str, Any]]:
    """Returns the numbers that no table of the experiment shows, as one dictionary per evaluation for the template.

    Its keys ``headings`` and ``rows`` give a table with a heading per column; a row is (name, one estimate per column). The
    rows are metrics and the columns models if there are more metrics than models, otherwise the reverse.
    """
    found = []
    table = summary.remaining_table(results)
    for evaluation in dict.fromkeys(column.evaluation for column in table.columns):
        columns = tuple(column for column in table.columns if column.evaluation == evaluation)
        rows = [row for row in summary.summarize(results, replace(table, columns=columns)) if row.has_values]
        if rows:
            metrics = [column.name for column in columns]
            names = [" · ".join(map(row.label, summary.labels(rows))) for row in rows]
            estimates = [row.estimates for row in rows]
            down = len(metrics) > len(names)
            grid = (
                zip(metrics, zip(*estimates, strict=True), strict=True) if down else zip(names, estimates, strict=True)
            )
            found.append(
                {
                    **_column(columns[0]),
                    "metrics": metrics,
                    "headings": names if down else metrics,
                    "rows": list(grid),
                    "shared": table_text.shared(rows),
                    "seeds_text": table_text.seeds_text(rows),
                    "instructions": table_text.instructions_text([results], [evaluation]),
                }
            )
    return found


def _evaluated_with(results: Results) -> list[str]:
    """Returns the vector instructions of the evaluations; empty if they are those of the trainings."""
    folders = [folder for _, folder in results.trained]
    trained = {folder.machine.get("instructions", "unknown") for folder in folders}
    evaluated = {used for folder in folders for used in folder.instructions.values()}
    return sorted(evaluated) if evaluated - trained else []


def _column(column: Column) -> dict[str, str]:
    """Returns what the template needs for a table column: ``heading``, ``evaluation``, ``metric`` and ``defined``.

    ``defined`` is the name of the evaluation without options, to which the page links its definition.
    """
    unit = ", %" if column.percent and not column.label.endswith("%") else ""
    return {
        "heading": column.label + unit,
        "evaluation": column.evaluation,
        "metric": column.name,
        "defined": EVALUATIONS.parse(column.evaluation)[0].name,
    }


def command(experiment: Experiment) -> str:
    """Returns the shell command, or the Python call, that repeats the run of an experiment."""
    definition = experiment.definition
    if "command" in definition:  # the evaluation of a checkpoint
        return str(definition["command"])
    if "name_given" not in definition:  # it was made in Python
        settings = {
            key: json.loads(value) for key, _, value in (text.partition("=") for text in definition["settings"])
        }
        return f"vitpos.run({definition['document']!r}, 'DIR', seeds={definition['seeds']!r}, **{settings!r})"
    words = ["vitpos", "run", definition["name_given"], "--out", "DIR"]
    for name in definition.get("plugins", ()):
        words += ["--plugin", name]
    for setting in definition["settings"]:
        words += ["--set", setting]
    if definition["seeds"] is not None:
        words += ["--seeds", ",".join(map(str, definition["seeds"]))]
    return shlex.join(words)


def _is_foreign(results: Results) -> bool:
    """Whether the results are those of a checkpoint that no run trained: its model and encoding are no specs."""
    return "command" in results.experiment.definition


def _definitions(results: Results) -> list[tuple[str, list[tuple[str, str]]]]:
    """Returns the docstrings of evaluations, data sets, models and encodings in use: pairs (title, list of (name, HTML)).

    Evaluations that the docstring of an evaluation refers to are included.
    """
    experiment = results.experiment
    shown = [column.evaluation for table in experiment.tables for column in table.columns]
    used: list[tuple[str, Registry, Sequence[str]]] = [
        ("Evaluations", EVALUATIONS, [*shown, *results.evaluations]),
        ("Data", DATASETS, [cell.data for cell in experiment.cells]),
    ]
    if not _is_foreign(results):
        used.append(("Models", MODELS, [cell.model for cell in experiment.cells]))
        used.append(("Encodings", ENCODINGS, [cell.encoding for cell in experiment.cells]))
    found = []
    for title, registry, specs in used:
        names = list(dict.fromkeys(term.name for spec in specs for term in registry.parse(spec)))
        for name in names:  # the list grows while it is read
            names += [other for other in _mentioned(name) if other not in names] if registry is EVALUATIONS else []
        found.append((title, [(name, _described(registry.describe(name))) for name in names]))
    return found


def _mentioned(name: str) -> list[str]:
    """Returns the evaluations that the docstring of evaluation ``name`` mentions in code type.

    For example ``resolution`` for ``resolution_curve``.
    """
    described = EVALUATIONS.describe(name)
    return [
        word for word in CODE.findall(described.definition) if word in EVALUATIONS and word not in described.options
    ]


def _described(described: Description) -> str:
    """Converts the description of a registered class or function to HTML: its docstring, then its options as a list."""
    options = "".join(f"<li><code>{name}</code>: {_marked(text)}</li>" for name, text in described.arguments.items())
    return prose(described.prose) + (f"<ul>{options}</ul>" if options else "")


def prose(docstring: str) -> str:
    """Converts a docstring to HTML paragraphs, with code in code type and names of metrics, as in ``auc: …``, in bold."""
    paragraphs = [METRICS.sub(r"<b>\1</b>:", _marked(part)) for part in docstring.split("\n\n")]
    return "".join(f"<p>{part}</p>" for part in paragraphs)


def _marked(text: str) -> str:
    """Escapes a paragraph for HTML and converts code in double backquotes to ``<code>``."""
    return CODE.sub(r"<code>\1</code>", html.escape(" ".join(text.split()), quote=False))


def _data_urls(figure: Figure | list[list[Figure]] | None) -> list[list[str]]:
    """Converts a figure, or rows of figures, to rows of data URLs of SVG images; None gives an empty list."""
    rows = figure if isinstance(figure, list) else [[figure]] if figure else []
    return [[f"data:image/svg+xml;base64,{base64.b64encode(svg(one)).decode()}" for one in row] for row in rows]

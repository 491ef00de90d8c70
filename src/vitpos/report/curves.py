"""Curves: numbers against what an evaluation was asked with, and against what the names of its metrics end with."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from matplotlib.figure import Figure

from vitpos import plotting as draw
from vitpos.catalog import Term
from vitpos.cells import Column, Table
from vitpos.questions import QUESTIONS
from vitpos.report.groups import arranged, base, colours, legend, lines
from vitpos.store import Folder
from vitpos.summary import Row, summarise

SHARES = ("accuracy", "agreement", "error", "consistency")  # metrics that are told in percent
SWEPT = ("accuracy", "consistency", "agreement")  # metrics that are drawn against an option
AXES = {  # what the numbers in names of metrics are, by the option that gives them or by the metric; True: logarithmic
    "factors": ("size, times that of training", True),
    "steps": ("pixels moved", False),
    "severities": ("severity", False),
    "tokens": ("layer", False),
}
FEWEST = 3  # points of a curve
LINES = "mean, and where there are several seeds a band of one standard deviation on either side."

Axis = tuple[str, bool]
Ways = dict[str, dict[float, Column]]  # a spec, without what the axis says → number → where it is stored


def curves(folder: Folder) -> Iterator[tuple[str, str, list[list[Figure]]]]:
    """Each metric against each axis that has three numbers or more: a row of figures for each group of rows of cells, and
    in it a figure for each way in which the evaluation was asked.
    """
    shade, compared = colours(folder), base(folder)
    for (name, metric, (label, log)), asked in _found(folder).items():
        ways = {spec: numbers for spec, numbers in asked.items() if len(numbers) >= FEWEST}
        if ways:
            unit = f"{metric}, %" if metric.startswith(SHARES) else metric
            groups = _drawn(folder, ways)
            rows = [draw.lines(group, x=label, y=unit, colors=shade, dashed=compared, log=log) for group in groups]
            grey = any(key not in shade for group in groups for points in group.values() for key in points)
            yield (
                f"{metric.replace('_', ' ').capitalize()} by {label.partition(',')[0]} ({name})",
                f"{_shared(ways)}: {LINES}{legend(folder) if grey else ''}",
                arranged(rows),
            )


def _drawn(folder: Folder, ways: Ways) -> list[dict[str, dict[str, draw.Points]]]:
    """For each group of rows of cells: title of a figure → row → points."""
    groups: dict[str, dict[str, dict[str, draw.Points]]] = {}
    for spec, way in _told_apart(ways).items():
        numbers = sorted(ways[spec])
        table = Table("", tuple(ways[spec][number] for number in numbers))
        for group, rows in lines(summarise(folder, table)).items():
            title = "\n".join(filter(None, (group, way)))
            groups.setdefault(group, {})[title] = {name: _points(row, numbers) for name, row in rows.items()}
    return list(groups.values())


def _found(folder: Folder) -> dict[tuple[str, str, Axis], Ways]:
    """Where the numbers of all curves are stored: by evaluation, metric and axis."""
    found: dict[tuple[str, str, Axis], Ways] = {}
    stored: dict[str, dict[str, None]] = {}  # spec → metrics
    for _, run in folder.runs:
        for spec, scores in run.scores.items():
            stored.setdefault(spec, {}).update(dict.fromkeys(scores))
    for spec, metrics in stored.items():
        (term,) = QUESTIONS.parse(spec)
        for metric in (metric for metric in SWEPT if metric in metrics):
            for option, value in QUESTIONS.filled(term).items():
                if type(value) in (int, float) and option != "seed":
                    rest = Term(term.name, {key: other for key, other in term.options.items() if key != option})
                    ways = found.setdefault((term.name, metric, (option, False)), {})
                    ways.setdefault(str(rest), {})[value] = _column(spec, metric)
        for stem, numbers in _series(metrics).items():
            axis = _axis(term, stem, set(numbers))
            ways = found.setdefault((term.name, stem.removesuffix(f"_{axis[0]}"), axis), {})
            ways[spec] = {number: _column(spec, metric) for number, metric in numbers.items()}
    return found


def _series(metrics: Mapping[str, None]) -> dict[str, dict[float, str]]:
    """Metrics such as accuracy_0.5 and tokens_2, by what comes before the number and by the number."""
    found: dict[str, dict[float, str]] = {}
    for metric in metrics:
        if matched := re.fullmatch(r"([a-z_]+)_(\d+(?:\.\d+)?)", metric):
            found.setdefault(matched[1], {})[float(matched[2])] = metric
    return found


def _axis(term: Term, stem: str, numbers: set[float]) -> Axis:
    """What the numbers of a series are: the option that lists them, or else what the metric counts."""
    listed = [
        key for key, value in QUESTIONS.filled(term).items() if isinstance(value, tuple) and set(value) == numbers
    ]
    key = listed[0] if listed else stem
    return AXES.get(key, (key if listed else "number", False))


def _column(spec: str, metric: str) -> Column:
    return Column("", spec, metric, percent=metric.startswith(SHARES))


def _points(row: Row, numbers: list[float]) -> draw.Points:
    """Number, mean and deviation of each figure there is, in percent where it is."""
    scaled = [
        (number, 100 if figure.percent else 1, figure) for number, figure in zip(numbers, row.figures, strict=True)
    ]
    return [
        (number, scale * figure.mean, scale * figure.deviation) for number, scale, figure in scaled if figure.values
    ]


def _told_apart(specs: Mapping[str, object]) -> dict[str, str]:
    """What tells each of some specs of one evaluation from the others; an option that is None tells nothing."""
    asked = {spec: QUESTIONS.filled(QUESTIONS.parse(spec)[0]) for spec in specs}
    differ = [key for key in next(iter(asked.values()), {}) if len({str(o[key]) for o in asked.values()}) > 1]
    named = {spec: {key: options[key] for key in differ if options[key] is not None} for spec, options in asked.items()}
    return {
        spec: ", ".join(f"{key}={value!r}" for key, value in options.items()) or ("as usual" if differ else "")
        for spec, options in named.items()
    }


def _shared(specs: Mapping[str, object]) -> str:
    """What some specs of one evaluation have in common."""
    terms = [QUESTIONS.parse(spec)[0] for spec in specs]
    same = {
        key: v for key, v in terms[0].options.items() if all(key in t.options and t.options[key] == v for t in terms)
    }
    return str(Term(terms[0].name, same))

"""Line charts of the report: curves of evaluations, metrics against an option of an evaluation, training curves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from matplotlib.figure import Figure

from vitpos import plotting as draw
from vitpos.evaluations import EVALUATIONS
from vitpos.evaluations.result import Result
from vitpos.lab.results import Results
from vitpos.lab.summary import Row, summarize
from vitpos.lab.tables import Column, Table
from vitpos.registry import Term
from vitpos.report.figure_groups import (
    as_rows,
    baseline_encoding,
    color_note,
    first_seed_folders,
    line_groups,
    row_colors,
)

SHARES = ("accuracy", "error", "consistency")  # metrics shown in percent
SWEPT = ("accuracy", "consistency")  # metrics drawn against an option
AXES = {  # x axis of the curves of an evaluation: label, and whether it is logarithmic
    "resolution_curve": ("size, relative to training", True),
    "learning_curve": ("epoch", False),
    "translation_curve": ("shift in pixels", False),
    "corruption": ("severity", False),
    "translation": ("layer", False),
}
FEWEST = 3  # points below which no curve is drawn
LINES = "mean over seeds; with several seeds, the band is ± one standard deviation."

Axis = tuple[str, bool]
Titled = tuple[str, str, list[list[Figure]]]  # title, caption, rows of figures
Ways = dict[str, dict[float, Column]]  # spec without the option on the axis → x → column of its numbers


def curves(results: Results) -> Iterator[Titled]:
    """Yields (title, caption, rows of figures) for each metric that was measured at three or more values of x.

    x is the independent variable of a curve that an evaluation returns, such as the image size, or a numeric option of the
    evaluation. There is a row of figures for each group of models, with a figure for each combination of the other options.
    """
    colors, baseline = row_colors(results), baseline_encoding(results)
    for (name, metric, (label, log)), variants in _found(results).items():
        ways = {spec: numbers for spec, numbers in variants.items() if len(numbers) >= FEWEST}
        if ways:
            unit = f"{metric}, %" if metric.startswith(SHARES) else metric
            groups = _drawn(results, ways)
            rows = [draw.lines(group, x=label, y=unit, colors=colors, dashed=baseline, log=log) for group in groups]
            gray = any(key not in colors for group in groups for points in group.values() for key in points)
            yield (
                f"{metric.replace('_', ' ').capitalize()} by {label.partition(',')[0]} ({name})",
                f"{_shared(ways)}: {LINES}{color_note(results) if gray else ''}",
                as_rows(rows),
            )


def training_curves(results: Results) -> Iterator[Titled]:
    """Yields (title, caption, rows of figures) of training loss and accuracy by epoch, for the first seed of each model.

    Yields nothing if no training log is stored.
    """
    colors, baseline, drawn, gray = row_colors(results), baseline_encoding(results), [], False
    for group, folders in first_seed_folders(results).items():
        logs = {name: log for name, folder in folders.items() if (log := folder.log)}
        gray |= any(name not in colors for name in logs)
        pair = []
        for key, scale, label in (("loss", 1, "training loss"), ("accuracy", 100, "training accuracy, %")):
            points = {name: [(at["epoch"], scale * at[key], 0.0) for at in log] for name, log in logs.items()}
            pair += draw.lines({group: points}, x="epoch", y=label, colors=colors, dashed=baseline) if logs else []
        drawn += [pair] if pair else []
    note = f"Mean over the training images of each epoch, first seed.{color_note(results) if gray else ''}"
    if drawn:
        yield "Training curves", note, drawn


def _drawn(results: Results, ways: Ways) -> list[dict[str, dict[str, draw.Points]]]:
    """Returns the points of line charts, a dictionary per group of models: title of a figure → name of a line → its points.

    Args:
        ways: spec of an evaluation, without the option that is on the x axis → x → table column that shows the metric at x.
    """
    groups: dict[str, dict[str, dict[str, draw.Points]]] = {}
    for spec, way in _distinguishing_options(ways).items():
        numbers = sorted(ways[spec])
        table = Table("", tuple(ways[spec][number] for number in numbers))
        for group, rows in line_groups(summarize(results, table)).items():
            title = "\n".join(filter(None, (group, way)))
            groups.setdefault(group, {})[title] = {name: _points(row, numbers) for name, row in rows.items()}
    return list(groups.values())


def _found(results: Results) -> dict[tuple[str, str, Axis], Ways]:
    """Returns the numbers that can be drawn as curves: (evaluation, metric, x axis) → variant → x → table column.

    The x axis is (label, whether it is logarithmic). x is the variable of a stored curve or a numeric option of the
    evaluation. A variant is the evaluation with its other options. The column shows the metric at x.
    """
    found: dict[tuple[str, str, Axis], Ways] = {}
    for spec, result in _stored(results).items():
        (term,) = EVALUATIONS.parse(spec)
        for metric in (metric for metric in SWEPT if metric in result.numbers):
            for option, value in EVALUATIONS.with_defaults(term).items():
                if type(value) in (int, float) and option != "seed":
                    rest = Term(term.name, {key: other for key, other in term.options.items() if key != option})
                    ways = found.setdefault((term.name, metric, (option, False)), {})
                    ways.setdefault(str(rest), {})[value] = _column(spec, metric)
        for metric, curve in result.curves.items():
            ways = found.setdefault((term.name, metric, AXES.get(term.name, ("x", False))), {})
            ways[spec] = {x: _column(spec, metric, x) for x in curve}
    return found


def _stored(results: Results) -> dict[str, Result]:
    """Returns evaluation → Result that has all metrics and curve points of any model; only their names and x are of use."""
    stored: dict[str, Result] = {}
    for cell, _ in results.trained:
        for spec, result in results.of(cell).items():
            union = stored.setdefault(spec, Result())
            union.numbers.update(result.numbers)
            for metric, curve in result.curves.items():
                union.curves.setdefault(metric, {}).update(curve)
    return stored


def _column(spec: str, metric: str, x: float | None = None) -> Column:
    return Column("", spec, metric, percent=metric.startswith(SHARES), x=x)


def _points(row: Row, numbers: list[float]) -> draw.Points:
    """Returns the points (x, mean, standard deviation) of a line; fractions are scaled to percent, missing values left out.

    Args:
        row: a table row with one estimate per x.
        numbers: the values of x.
    """
    scaled = [(number, 100 if one.percent else 1, one) for number, one in zip(numbers, row.estimates, strict=True)]
    return [(number, scale * one.mean, scale * one.std) for number, scale, one in scaled if one.values]


def _distinguishing_options(specs: Mapping[str, object]) -> dict[str, str]:
    """Returns for each spec the options in which it differs from the other specs, as text such as ``per='image'``.

    Options that are None are left out.

    Args:
        specs: dictionary whose keys are specs of one evaluation with different options, such as ``jigsaw(per='image')``;
            its values are not used.
    """
    filled = {spec: EVALUATIONS.with_defaults(EVALUATIONS.parse(spec)[0]) for spec in specs}
    differ = [key for key in next(iter(filled.values()), {}) if len({str(o[key]) for o in filled.values()}) > 1]
    named = {
        spec: {key: options[key] for key in differ if options[key] is not None} for spec, options in filled.items()
    }
    return {
        spec: ", ".join(f"{key}={value!r}" for key, value in options.items()) or ("default options" if differ else "")
        for spec, options in named.items()
    }


def _shared(specs: Mapping[str, object]) -> str:
    """Returns a spec, such as ``jigsaw(per='image')``, with the options that several specs of one evaluation share.

    Args:
        specs: dictionary whose keys are the specs; its values are not used.
    """
    terms = [EVALUATIONS.parse(spec)[0] for spec in specs]
    same = {
        key: v for key, v in terms[0].options.items() if all(key in t.options and t.options[key] == v for t in terms)
    }
    return str(Term(terms[0].name, same))

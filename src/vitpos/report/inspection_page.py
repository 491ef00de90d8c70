"""Writes the results of ``vitpos inspect``: ``inspect.json``, a PNG per figure, and an HTML page that compares models."""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from vitpos import plotting
from vitpos.files import write_bytes, write_text
from vitpos.inspection.inspect import Inspection
from vitpos.inspection.logits import logit_contrasts
from vitpos.inspection.model import LayerSummary, inspect_model
from vitpos.inspection.offsets import bias_numbers
from vitpos.inspection.table import inspect_table
from vitpos.inspection.table_projection import grid_residual, trustworthiness
from vitpos.inspection.table_regression import Regression
from vitpos.inspection.table_stats import Spectrum
from vitpos.inspection.table_structure import Finding, structure
from vitpos.report.inspection_table import comparison_table
from vitpos.report.page import prose, template

Drawn = Sequence[tuple[Inspection, Mapping[str, bytes]]]  # inspections, each with name of a figure → bytes of its PNG

DEFINITIONS = {  # what the page prints below the figures: title → object whose docstring defines the numbers
    "table": inspect_table,
    "table › spectrum": Spectrum,
    "table › regression": Regression,
    "table › structure": structure,
    "table › structure, each entry": Finding,
    "table › projection › residual": grid_residual,
    "table › projection › trustworthiness": trustworthiness,
    "offsets › biases": bias_numbers,
    "model": LayerSummary.numbers,
    "model › logit_contrasts": logit_contrasts,
    "model › bias_content_correlation": inspect_model,
}
SHARED_CURVES = {  # caption → key in the section "model", key of its error band, first layer, unit
    "Position from tokens, R² of a linear probe by layer (0: input; bands: standard errors over images)": (
        "probe_r2",
        "probe_standard_error",
        0,
        "R²",
    ),
    "Position in the logits, by layer (patches permuted)": ("position_share", "", 1, "fraction of variance"),
    "Attention distance, by layer": ("attention_distance", "", 1, "pixels"),
}


def write_inspection(folder: Path, inspection: Inspection) -> dict[str, bytes]:
    """Writes the numbers of an inspection as ``inspect.json``, and its figures as PNG files, into a folder.

    Returns name of the figure → bytes of its PNG.
    """
    write_text(folder / "inspect.json", _dump(inspection.numbers))
    images = {name: plotting.png(plotting.draw(one.kind, one.data)) for name, one in inspection.figures.items()}
    for name, image in images.items():
        write_bytes(folder / f"{name}.png", image)
    return images


def write_all_numbers(path: Path, inspections: Sequence[Inspection]) -> Path:
    """Writes the numbers of several inspections into one JSON file, as a list with one object each; returns its path."""
    return write_text(path, _dump([one.numbers for one in inspections]))


def folder_name(number: int, inspection: Inspection) -> str:
    """Returns the folder name of one of several inspections, such as ``01-rope-vit-mnist-seed-0``.

    It consists of the number, counted from 1, and of the name of the model or the end of the path of a checkpoint.

    Args:
        number: index of the inspection, counted from 0.
    """
    name = inspection.target.name
    words = re.sub(r"[^A-Za-z0-9.]+", "-", name)
    return f"{number + 1:02}-" + (words[:60] if " · " in name else words[-60:]).strip("-")


def write_page(path: Path, drawn: Drawn) -> Path:
    """Writes a self-contained HTML page with a column per inspected model; returns its path.

    For several models it also draws curves by layer on common axes.

    Args:
        drawn: pairs (inspection, name of the figure → bytes of its PNG).
    """
    inspections = [inspection for inspection, _ in drawn]
    captions = {name: figure.caption for one in inspections for name, figure in one.figures.items()}
    figures = [
        (name, _captions(name, caption, inspections), [_data_url(images.get(name)) for _, images in drawn])
        for name, caption in captions.items()
    ]
    page = template("inspection.html").render(
        names=[one.target.name for one in inspections],
        rows=comparison_table(inspections),
        shared=[(caption, _data_url(plotting.png(figure))) for caption, figure in shared_figures(inspections)],
        figures=figures,
        definitions=[(title, _definition(thing)) for title, thing in DEFINITIONS.items()],
    )
    return write_text(path, page)


def shared_figures(inspections: Sequence[Inspection]) -> Iterator[tuple[str, Figure]]:
    """Yields (caption, figure) of curves by layer with one line per model.

    Yields nothing if fewer than two of the inspections ran a model.
    """
    names = [f"{number}: {one.target.name.split(' · ')[0]}" for number, one in enumerate(inspections, 1)]
    models = {
        name: one.numbers["model"] for name, one in zip(names, inspections, strict=True) if "model" in one.numbers
    }
    for caption, (key, band, first, unit) in SHARED_CURVES.items() if len(models) > 1 else ():
        series = {name: _curve(model, key, band, first) for name, model in models.items()}
        yield caption, plotting.line_chart(series, title="", x="layer", y=unit, highlighted=names)


def _curve(model: Mapping[str, Any], key: str, band: str, first: int) -> list[tuple[float, float, float]]:
    """Returns the points (layer, value, half width of the error band) of one curve.

    Args:
        model: numbers of an inspected model, by key.
        key: which list of values, one per layer.
        band: key of the half widths; empty for none.
        first: number of the first layer.
    """
    widths = model[band] if band else [0.0] * len(model[key])
    return [(float(layer), *point) for layer, point in enumerate(zip(model[key], widths, strict=True), first)]


def _definition(thing: object) -> str:
    """Returns the docstring of an object as HTML, without its ``Args:`` list."""
    return prose((thing.__doc__ or "").partition("Args:")[0])


def _captions(name: str, caption: str, inspections: Sequence[Inspection]) -> list[str]:
    """Returns the captions of the figures called ``name`` of several inspections.

    If all captions are equal, this is a list with that caption; otherwise there is one caption per inspection, empty for
    inspections without the figure.

    Args:
        caption: the caption in the first inspection that has the figure.
    """
    each = [one.figures[name].caption if name in one.figures else "" for one in inspections]
    return [caption] if {*each} <= {caption, ""} else each


def _data_url(image: bytes | None) -> str:
    return f"data:image/png;base64,{base64.b64encode(image).decode()}" if image else ""


def _dump(numbers: Any) -> str:
    return json.dumps(json_numbers(numbers), indent=1, ensure_ascii=False) + "\n"


def json_numbers(value: Any) -> Any:
    """Returns a copy of nested dictionaries and lists with None in place of NaN and infinity, which JSON lacks."""
    if isinstance(value, dict):
        return {str(key): json_numbers(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [json_numbers(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value

"""What was seen inside: ``inspect.json``, a PNG for each figure, and one page that sets several side by side."""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from vitpos.inspection.biases import bias_effects
from vitpos.inspection.inspect import Inspection
from vitpos.inspection.model import look_at_work
from vitpos.inspection.offsets import look_at_offsets
from vitpos.inspection.spectrum import Spectrum
from vitpos.inspection.table import look_at_table
from vitpos.inspection.table_projection import grid_residual
from vitpos.inspection.table_regression import Regression
from vitpos.inspection.table_structure import Finding, structure
from vitpos.inspection.where import Where
from vitpos.plotting import charts as draw
from vitpos.report.inspection_table import side_by_side
from vitpos.report.page import prose, template
from vitpos.store import write_bytes, write_text

Seen = Sequence[tuple[Inspection, Mapping[str, bytes]]]  # subjects with their pictures

DEFINED = (
    look_at_table,
    Spectrum,
    Regression,
    structure,
    Finding,
    grid_residual,
    look_at_offsets,
    Where.numbers,
    bias_effects,
    look_at_work,
)  # what the page explains


def write_inspection(folder: Path, one: Inspection) -> dict[str, bytes]:
    """Writes numbers and figures of a subject into a folder; gives the pictures."""
    write_text(folder / "inspect.json", json.dumps(plain(one.look.numbers), indent=1, ensure_ascii=False) + "\n")
    pictures = {name: draw.png(drawn.figure) for name, drawn in one.look.figures.items()}
    for name, picture in pictures.items():
        write_bytes(folder / f"{name}.png", picture)
    return pictures


def slug(number: int, one: Inspection) -> str:
    """The name of a subject's folder among several, counted as on the page: an encoding first, or the end of a path."""
    words = re.sub(r"[^A-Za-z0-9.]+", "-", one.subject.name)
    return f"{number + 1:02}-" + (words[:60] if " · " in one.subject.name else words[-60:]).strip("-")


def write_all(path: Path, seen: Sequence[Inspection]) -> Path:
    """Writes the numbers of several subjects into one file: a list."""
    return write_text(path, json.dumps([plain(one.look.numbers) for one in seen], indent=1, ensure_ascii=False) + "\n")


def write_page(path: Path, seen: Seen) -> Path:
    """One page that stands alone: a column for each subject, with its pictures; curves of several on the same axes."""
    captions = {name: drawn.caption for one, _ in seen for name, drawn in one.look.figures.items()}
    figures = [
        (name, _caption(name, caption, seen), [_address(pictures.get(name)) for _, pictures in seen])
        for name, caption in captions.items()
    ]
    page = template("templates/inspection.html").render(
        names=[one.subject.name for one, _ in seen],
        rows=side_by_side([one for one, _ in seen]),
        together=[(caption, _address(draw.png(figure))) for caption, figure in together([one for one, _ in seen])],
        figures=figures,
        definitions=[prose(thing.__doc__ or "") for thing in DEFINED],
    )
    return write_text(path, page)


def together(seen: Sequence[Inspection]) -> Iterator[tuple[str, Figure]]:
    """What several subjects have as curves, drawn on the same axes."""
    wanted = {
        "How well the place can be told from tokens, by layer (0: input; bands: standard errors over images)": (
            "probe_r2",
            "probe_standard_error",
            0,
            "R²",
        ),
        "How much of the logits goes by places, by layer (shuffled)": ("position_share", "", 1, "share"),
        "How far attention reaches, by layer": ("attention_distance", "", 1, "pixels"),
    }
    names = [f"{number}: {one.subject.name.split(' · ')[0]}" for number, one in enumerate(seen, 1)]
    colours = dict(zip(names, draw.COLOURS, strict=False))
    for caption, (key, band, first, unit) in wanted.items():
        curves = {
            name: _curve(one.look.numbers["work"], key, band, first)
            for name, one in zip(names, seen, strict=True)
            if "work" in one.look.numbers
        }
        if len(curves) > 1:
            yield caption, draw.lines({"": curves}, x="layer", y=unit, colours=colours)[0]


def _curve(work: Mapping[str, Any], key: str, band: str, first: int) -> list[tuple[float, float, float]]:
    """Layers from the ``first`` on with a number of each, and the width of the band around it if it has one."""
    widths = work[band] if band else [0.0] * len(work[key])
    return [(float(n), *both) for n, both in enumerate(zip(work[key], widths, strict=True), first)]


def _caption(name: str, caption: str, seen: Seen) -> list[str]:
    """The one caption that all share, or one for each subject."""
    each = [one.look.figures[name].caption if name in one.look.figures else "" for one, _ in seen]
    return [caption] if {*each} <= {caption, ""} else each


def _address(picture: bytes | None) -> str:
    return f"data:image/png;base64,{base64.b64encode(picture).decode()}" if picture else ""


def plain(value: Any) -> Any:
    """Nested numbers as JSON has them: what is not finite is null."""
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value

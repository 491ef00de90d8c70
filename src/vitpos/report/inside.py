"""What was seen inside: ``inspect.json``, a PNG for each figure, and one page that sets several side by side."""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vitpos.analysis import figures as draw
from vitpos.analysis.looks import look_at_table, look_at_work
from vitpos.analysis.projection import grid_residual
from vitpos.analysis.regression import Regression
from vitpos.analysis.spectrum import Spectrum
from vitpos.analysis.structure import Finding, structure
from vitpos.analysis.where import Where
from vitpos.inspection import Inspection
from vitpos.report.page import prose, template
from vitpos.store import write_bytes, write_text

DEFINED = (
    Spectrum,
    Regression,
    structure,
    Finding,
    grid_residual,
    Where.numbers,
    look_at_table,
    look_at_work,
)  # what the page explains
CAPTIONS = {
    "similarity": "Cosine between the vector of each place (white dot) and those of all others, as in ViT's Figure 7.",
    "norms": "Length of the vector of each place.",
    "spectrum": "Explained variance by the number of principal components (MJP's Figure 4), centred.",
    "pca-2d": "Places by two principal components: rows joined in blue, columns in red, the first place black.",
    "pca-3d": "Places by three principal components.",
    "umap": "Places by UMAP, which depends on its seed; the residual is the number to read.",
    "biases": "What each head (columns) adds to the logit at each offset, by layer (rows); grey: it does not see.",
    "frequencies": "By how much a step turns each pair of channels, a colour for each head.",
    "where": "How well the place can be told from tokens, and how much of the logits goes by places, layer by layer.",
    "attention-distance": "Mean distance of what is looked at, by head (grey) and on average.",
    "mean-attention": "Where each place (white dot) looks on average over images, in the layer where position weighs most.",
    "attention": "What is looked at in the last layer, by head, and carried through all layers (rollout).",
}
PLAIN = {"gates": "gates of the middle place", "counts": "positions counted from the middle place"}


def write_inspections(out: Path, seen: Sequence[Inspection], *, name: str = "inspect") -> Path:
    """Writes everything into a folder, into one folder for each of several subjects; gives the page."""
    drawn = [{title: draw.png(figure) for title, figure in one.look.figures.items()} for one in seen]
    for number, (one, pictures) in enumerate(zip(seen, drawn, strict=True)):
        folder = out / slug(number, one) if len(seen) > 1 else out
        write_text(folder / "inspect.json", json.dumps(plain(one.look.numbers), indent=1, ensure_ascii=False) + "\n")
        for title, picture in pictures.items():
            write_bytes(folder / f"{title}.png", picture)
    return write_text(out / f"{name}.html", page(seen, drawn))


def slug(number: int, one: Inspection) -> str:
    """The name of a subject's folder."""
    return f"{number:02}-" + re.sub(r"[^A-Za-z0-9.]+", "-", one.subject.name)[:60].strip("-")


def page(seen: Sequence[Inspection], drawn: Sequence[Mapping[str, bytes]]) -> str:
    """One page that stands alone: a column for each subject, with its drawn figures; what it does not have stays empty."""
    titles = dict.fromkeys(title for pictures in drawn for title in pictures)
    figures = [(_caption(title), [_address(pictures.get(title)) for pictures in drawn]) for title in titles]
    return template("inside.html").render(
        names=[one.subject.name for one in seen],
        rows=side_by_side(seen),
        figures=figures,
        definitions=[prose(thing.__doc__ or "") for thing in DEFINED],
    )


def _caption(title: str) -> str:
    stem, _, line = title.rpartition("-")
    return CAPTIONS.get(title) or f"{PLAIN[stem].capitalize()}, {('along its row', 'along its column')[int(line)]}."


def _address(picture: bytes | None) -> str:
    return f"data:image/png;base64,{base64.b64encode(picture).decode()}" if picture else ""


def side_by_side(seen: Sequence[Inspection]) -> list[tuple[str, list[str]]]:
    """Lines of a table: what is said of each subject, under the same headings."""
    each = [told(one.look.numbers) for one in seen]
    return [(key, [one.get(key, "–") for one in each]) for key in dict.fromkeys(key for one in each for key in one)]


def told(numbers: dict[str, Any]) -> dict[str, str]:
    """The facts and the main numbers of an inspection, as text."""
    said = {"encoding": "; ".join(f"{name}: {what}" for name, what in numbers["encodings"].items())}
    said["found in"] = numbers["kind"]
    if numbers["grid"]:
        source = f" ({numbers['grid_source']})" if numbers["grid_source"] else ""
        said["grid"] = "×".join(map(str, numbers["grid"])) + source
    if numbers["patch"]:
        said["patch"] = "×".join(map(str, numbers["patch"]))
    for key in ("axes", "prefix_tokens", "dim", "depth", "heads"):
        value = numbers[key]
        if value not in (None, "", []):
            said[key.replace("_", " ")] = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return said | _of_table(numbers.get("table")) | _of_work(numbers.get("work"))


def _of_table(table: dict[str, Any] | None) -> dict[str, str]:
    if table is None:
        return {}
    said = {}
    own = table["spectrum"]["table"]["centred"]
    if own["effective_rank"] is not None:
        said["effective rank"] = _short(own["effective_rank"])
        said["variance in 3, 5, 10 components"] = _several(own.get(f"explained_{n}") for n in (3, 5, 10))
    for method in table["regression"]["table"]:
        errors = [table["regression"][one].get(method, {}).get("grid_mae") for one in ("table", "noise", "sin_cos")]
        said[f"place by {method.replace('_', ' ')}, error in patches (noise, waves)"] = _several(errors)
    for way, number in table["projection"].items():
        said[way.replace("_", " ")] = _short(number)
    for finding in table["structure"].values():
        if finding["verdict"]:
            verdict = f"{finding['verdict']} (effect {finding['effect']:.3g}, p {finding['p']:.2g})"
        else:
            verdict = finding["reason"]
        said[finding["statement"]] = verdict
    return said


def _of_work(work: dict[str, Any] | None) -> dict[str, str]:
    if work is None:
        return {}
    said = {
        "place from tokens, R² by layer": _several(work["probe_r2"]),
        "position in logits, by layer (shuffled)": _several(work["position_share"]),
        "position in logits, by layer (pictures)": _several(work["position_share_pictures"]),
        "attention distance, px, by layer": _several(work["attention_distance"]),
        "attention distance if uniform, px": _short(work["uniform_distance"]),
    }
    if "head_diversity" in work:
        said["diversity of heads, bits, by layer"] = _several(work["head_diversity"])
    if told := work.get("bias_by_content"):
        said["bias with likeness, correlation by layer"] = _several(map(_mean, told["correlation"]))
    return said


def _mean(values: Sequence[float | None]) -> float:
    known = [value for value in values if value is not None and not math.isnan(value)]
    return sum(known) / len(known) if known else math.nan


def _several(values: Any) -> str:
    return ", ".join(map(_short, values))


def _short(value: float | None) -> str:
    if value is None or math.isnan(value):
        return "–"
    return f"{value:.3g}" if abs(value) >= 1 else f"{value:.3f}"


def plain(value: Any) -> Any:
    """Nested numbers as JSON has them: what is not finite is null."""
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value

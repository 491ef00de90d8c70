"""The summary table of inspections: one row per quantity, one column per model or checkpoint."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from vitpos.inspection.inspect import Inspection
from vitpos.inspection.table_regression import EXTRA
from vitpos.inspection.table_stats import linear_cka

MISSING = "–"
TEST_NOTE = (
    "effect: a difference of mean cosine similarities, or of norms over their mean; p: two-sided, by permuted positions "
    "for neighbors and row-major order, by random tables whose similarity depends on distance alone for rows and columns, "
    "and by ones whose similarity depends on the offset alone for border, corners and norms; tested at level .01"
)
FEW_IMAGES = 100  # below which the table mentions sampling noise
TABLES = ("table", "noise", "sin_cos")
METADATA_LABELS = {
    "axes": "token order",
    "prefix_tokens": "prefix tokens",
    "dim": "width",
    "depth": "layers",
    "heads": "heads",
    "biases": "biases",
}
REGRESSION_NOTES = {"ridge": "penalty chosen on inner folds", "minimum_norm": "least squares, as in MJP's Table 8"}
BIAS_PARTS = {
    "by_distance": ("by distance", "explained by the distance between two positions"),
    "by_row": ("by row offset", "explained by the row offset alone"),
    "by_column": ("by column offset", "explained by the column offset alone"),
    "antisymmetric": ("antisymmetric", "that changes sign when query and key are exchanged"),
}
MODEL_ROWS = {
    "probe_r2": (
        "position from tokens, R² by layer",
        "linear regression on images with permuted patches; 0 is chance; the input of the first layer first",
    ),
    "probe_standard_error": ("standard error of that R²", "over the images it was tested on, a fifth of all"),
    "position_share": (
        "position in logits, by layer (shuffled)",
        "fraction of the variance of attention logits explained by the pair of positions, on images with permuted "
        "patches; unbiased, so it can be below 0",
    ),
    "position_share_unshuffled": (
        "position in logits, by layer (unshuffled)",
        "the same on the original images, where the average content at a position counts too",
    ),
    "attention_distance": ("attention distance, px, by layer", "mean over heads"),
    "head_diversity": (
        "head diversity, bits, by layer",
        "Jensen–Shannon divergence between the mean attention of two heads",
    ),
    "head_diversity_per_image": ("head diversity per image, bits, by layer", "the same in each image, then averaged"),
}
CONTRAST_ROWS = {"neighbors": "neighbors", "same_row": "same row", "same_column": "same column"}


class Row(NamedTuple):
    """One row of the summary table of an inspection: heading, explanation of the quantity, and its value as text."""

    heading: str
    note: str  # what the quantity is
    text: str


def comparison_table(inspections: Sequence[Inspection]) -> list[tuple[str, str, list[str]]]:
    """Returns the rows (heading, note, one text per inspection) of the table that compares inspected models.

    A dash stands where an inspection lacks the quantity.
    """
    columns = [
        {row.heading: row for row in [*summary_rows(one.numbers), *_similarity_row(inspections[0], one)]}
        for one in inspections
    ]
    notes = {heading: row.note for column in columns for heading, row in column.items()}
    missing = Row("", "", MISSING)
    return [
        (heading, note, [column.get(heading, missing).text for column in columns]) for heading, note in notes.items()
    ]


def summary_rows(numbers: dict[str, Any]) -> Iterator[Row]:
    """Yields the rows with metadata and main numbers of one inspection; ``numbers``: content of ``inspect.json``."""
    yield from _metadata_rows(numbers)
    if "table" in numbers:
        yield from _table_rows(numbers["table"])
    if "offsets" in numbers:
        yield from _offset_rows(numbers["offsets"])
    if "model" in numbers:
        yield from _model_rows(numbers["model"])


def _metadata_rows(numbers: dict[str, Any]) -> Iterator[Row]:
    if "encodings" in numbers:
        yield Row("encoding", "", "; ".join(f"{name}: {text}" for name, text in numbers["encodings"].items()))
        yield Row("format", "library or family whose tensor names these are", numbers["format"])
        if numbers["format"] != "vitpos":
            yield Row("not visible in a file", "", "what code computes without storing it, as most rotary encodings")
    if numbers.get("grid"):
        source = f" ({numbers['grid_source']})" if numbers["grid_source"] else ""
        note = "rows and columns of patches, or of a window if only windows have tables, and the source"
        yield Row("grid", note, "×".join(map(str, numbers["grid"])) + source)
    if numbers.get("patch"):
        yield Row("patch size", "height and width, in pixels", "×".join(map(str, numbers["patch"])))
    for key, label in METADATA_LABELS.items():
        value = numbers.get(key)
        if value not in (None, "", []):
            yield Row(label, "", ", ".join(map(str, value)) if isinstance(value, list) else str(value))
    if "skipped" in numbers:
        yield Row("model not run", "no probes and no attention maps", numbers["skipped"])
    if "reason" in numbers:
        yield Row("nothing to inspect", "", numbers["reason"])


def _table_rows(table: dict[str, Any]) -> Iterator[Row]:
    spectrum = table["spectrum"]["table"]["centered"]
    if spectrum["effective_rank"] is None:
        yield Row("spectrum", "", spectrum["reason"])
    else:
        note = "exp of the entropy of the variance over principal components: the number of directions in use"
        yield Row("effective rank", note, _format(spectrum["effective_rank"]))
        fractions = _join(spectrum.get(f"explained_{n}") for n in (3, 5, 10))
        yield Row("variance in 3, 5, 10 components", "fraction, of centered vectors (MJP's Table 6)", fractions)
    yield from _regression_rows(table["regression"])
    for name, projection in table["projection"].items():
        note = "Procrustes distance: 0 if the positions lie as on the grid, 1 if there is no resemblance"
        residual = projection["residual"]
        text = _format(residual) if residual is not None else projection["reason"]
        yield Row(f"residual to the grid, {name.upper()}", note, text)
    for finding in table["structure"].values():
        yield Row(finding["statement"], TEST_NOTE, _verdict(finding))


def _regression_rows(regression: dict[str, Any]) -> Iterator[Row]:
    test_note = "mean absolute error of row and column on held-out positions, five folds"
    for method in regression["table"]["methods"]:
        scores = [regression[name]["methods"].get(method, {}) for name in TABLES]
        name = method.replace("_", " ")
        note = f"{test_note}; {REGRESSION_NOTES.get(method, 'scikit-learn')}; the same for two baseline tables"
        heading = f"position by {name}, error in patches (white noise, fixed sin-cos)"
        yield Row(heading, note, _join(one.get("grid_mae") for one in scores))
        if method in EXTRA:  # which MJP's authors found to overfit
            note = "on the positions that were fitted; far below the row above if the fit memorizes"
            yield Row(f"training error of {name}", note, _join(one.get("grid_train_mae") for one in scores))
    if subsampled := regression["table"]["subsampled"]:
        yield Row("positions used", "of a large table, for regressions and tests", subsampled)


def _verdict(finding: dict[str, Any]) -> str:
    if not finding["verdict"]:
        return str(finding["reason"])
    verdict = "not significant at .01" if finding["verdict"] == "no structure" else finding["verdict"]
    return f"{verdict} (effect {finding['effect']:.3g}, p {finding['p']:.2g})"


def _offset_rows(offsets: dict[str, Any]) -> Iterator[Row]:
    if biases := offsets.get("biases"):
        note = "over pairs of positions, in logits, mean over heads"
        yield Row("std of biases, by layer", note, _join(_mean(one["std"]) for one in biases.values()))
        for part, (label, meaning) in BIAS_PARTS.items():
            text = _join(_mean(one[part]) for one in biases.values())
            noise = ", ".join(dict.fromkeys(_format(one["noise"][part]) for one in biases.values()))
            note = f"fraction of the variance of biases over pairs of positions {meaning}, mean over heads"
            note += "; in brackets its expectation for white noise"
            yield Row(f"variance of biases, {label}, by layer (white noise)", note, f"{text} ({noise})")
    if frequencies := offsets.get("frequencies"):
        norms = [math.hypot(*pair) for heads in frequencies for pairs in heads for pair in pairs]
        text = _join((min(norms), max(norms)))
        yield Row("rotary frequencies, radians per patch", "smallest and largest", text)


def _model_rows(model: dict[str, Any]) -> Iterator[Row]:
    few = f" (fewer than {FEW_IMAGES}: expect sampling noise)" if model["images"] < FEW_IMAGES else ""
    yield Row("test images", "a fifth of them tests the probe", f"{model['images']}{few}")
    for key, (heading, note) in MODEL_ROWS.items():
        if key in model:
            yield Row(heading, note, _join(model[key]))
    for key, label in CONTRAST_ROWS.items():
        if key in model["logit_contrasts"]:
            note = "difference of mean logits, on images with permuted patches, mean over heads"
            yield Row(f"logits of {label} minus all others, by layer", note, _join(model["logit_contrasts"][key]))
    note = "of attention that is equal for all patches"
    yield Row("uniform attention distance, px", note, _format(model["attention_distance_uniform"]))
    if correlation := model.get("bias_content_correlation"):
        note = (
            "between the bias of two patches and the cosine of their tokens at equal offsets, mean over heads, images"
        )
        yield Row("bias and content, correlation by layer", note, _join(map(_mean, correlation["mean"])))


def _similarity_row(first: Inspection, other: Inspection) -> Iterator[Row]:
    a, b = first.target.table, other.target.table
    if first is not other and a is not None and b is not None and a.shape[:2] == b.shape[:2]:
        note = "linear centered kernel alignment: 1 if one table is the other, rotated and scaled"
        yield Row("similarity to the first table (CKA)", note, _format(linear_cka(a.flatten(0, 1), b.flatten(0, 1))))


def _mean(values: Sequence[float | None]) -> float:
    known = [value for value in values if value is not None and not math.isnan(value)]
    return sum(known) / len(known) if known else math.nan


def _join(values: Iterable[float | None]) -> str:
    return ", ".join(map(_format, values))


def _format(value: float | None) -> str:
    if value is None or math.isnan(value):
        return MISSING
    return f"{value:.3g}" if abs(value) >= 1 else f"{value:z.3f}"  # z: no minus sign before 0.000

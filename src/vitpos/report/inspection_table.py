"""What is said of inspected models in lines of a table: a heading, what it means, and a text for each."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from vitpos.inspection.inspect import Inspection
from vitpos.inspection.similarity import linear_cka
from vitpos.inspection.table_regression import SLOW

Line = tuple[str, str, str]  # heading, what it means, what is said
TESTED = (
    "effect: a difference of mean cosines, or of lengths over their mean; p: two-sided, for neighbours and lists by "
    "shuffled places, for rows and columns by random tables of the same likeness by distance, for rim, corners and lengths "
    "(which are centre-weighted or edge-aware) by ones of the same likeness by offset; judged at .01"
)
FEW = 100  # images of which numbers vary from draw to draw
BASELINES = ("table", "noise", "sin_cos")


def side_by_side(seen: Sequence[Inspection]) -> list[tuple[str, str, list[str]]]:
    """Lines of a table: what is said of each subject, under the same headings."""
    each = [
        {heading: (meaning, text) for heading, meaning, text in [*told(one.look.numbers), *_likeness(seen[0], one)]}
        for one in seen
    ]
    meanings = {heading: meaning for one in each for heading, (meaning, _) in one.items()}
    return [
        (heading, meaning, [one.get(heading, ("", "–"))[1] for one in each]) for heading, meaning in meanings.items()
    ]


def told(numbers: dict[str, Any]) -> Iterator[Line]:
    """The facts and the main numbers of an inspection."""
    yield from _facts(numbers)
    if "table" in numbers:
        yield from _of_table(numbers["table"])
    if "offsets" in numbers:
        yield from _of_offsets(numbers["offsets"])
    if "work" in numbers:
        yield from _of_work(numbers["work"])


def _facts(numbers: dict[str, Any]) -> Iterator[Line]:
    if "encodings" in numbers:
        said = "; ".join(f"{name}: {what}" for name, what in numbers["encodings"].items())
        yield (
            "encoding",
            "what was found",
            said,
        )
        yield "found in", "whose names the tensors have", numbers["kind"]
        if numbers["kind"] != "vitpos":
            yield "cannot be seen", "", "what code computes and no file stores, as most rotations"
    if numbers.get("grid"):
        source = f" ({numbers['grid_source']})" if numbers["grid_source"] else ""
        yield (
            "grid",
            "rows and columns of patches, or of a window where attention stays in windows, and what says so",
            "×".join(map(str, numbers["grid"])) + source,
        )
    if numbers.get("patch"):
        yield "patch", "height and width, in pixels", "×".join(map(str, numbers["patch"]))
    for key in ("axes", "prefix_tokens", "dim", "depth", "heads", "biases"):
        value = numbers.get(key)
        if value not in (None, "", []):
            yield key.replace("_", " "), "", ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    if "unwatched" in numbers:
        yield "not watched at work", "no probes, no attention", numbers["unwatched"]
    if "why" in numbers:
        yield "nothing to see", "", numbers["why"]


def _of_table(table: dict[str, Any]) -> Iterator[Line]:
    own = table["spectrum"]["table"]["centred"]
    if own["effective_rank"] is None:
        yield "spectrum", "", own["reason"]
    else:
        meaning = "exp of the entropy of the variance over principal components: how many directions are used"
        yield "effective rank", meaning, _short(own["effective_rank"])
        shares = _several(own.get(f"explained_{n}") for n in (3, 5, 10))
        yield "variance in 3, 5, 10 components", "share, 0 to 1, mean vector taken off (MJP's Table 6)", shares
    how = "mean absolute error of row and column, in patches, of places held out in five folds"
    methods = {"ridge": "penalty chosen on inner folds", "minimum_norm": "least squares, as in MJP's Table 8"}
    for method in table["regression"]["table"]["methods"]:
        known = [table["regression"][one]["methods"].get(method, {}) for one in BASELINES]
        heading = f"place by {method.replace('_', ' ')}, error in patches (white noise, fixed waves)"
        meaning = f"{how}; {methods.get(method, 'scikit-learn')}; in the same way of tables of noise and of waves"
        yield heading, meaning, _several(one.get("grid_mae") for one in known)
        if method in SLOW:  # which MJP's authors found to overfit
            heading, meaning = f"the same by {method}, places fitted on", "far below the line above: learned by heart"
            yield heading, meaning, _several(one.get("grid_fit_mae") for one in known)
    if taken := table["regression"]["table"]["taken"]:
        yield "places taken", "of a large table not all are, for regressions and tests", taken
    for way, laid in table["projection"].items():
        meaning = "Procrustes: 0 if the places lie as on the grid, 1 if nothing of it is to be seen"
        yield (
            f"residual of the grid, {way.upper()}",
            meaning,
            _short(laid["residual"]) if laid["residual"] is not None else laid["reason"],
        )
    for finding in table["structure"].values():
        yield finding["statement"], TESTED, _verdict(finding)


def _verdict(finding: dict[str, Any]) -> str:
    if not finding["verdict"]:
        return str(finding["reason"])
    verdict = "no structure shown at .01" if finding["verdict"] == "no structure" else finding["verdict"]
    return f"{verdict} (effect {finding['effect']:.3g}, p {finding['p']:.2g})"


def _of_offsets(offsets: dict[str, Any]) -> Iterator[Line]:
    if biases := offsets.get("biases"):
        yield (
            "deviation of biases, by layer",
            "over pairs of places, in logits, mean over heads",
            _several(_mean(one["deviation"]) for one in biases.values()),
        )
        parts = {
            "by_distance": "goes by the distance of two places",
            "by_row": "goes by their distance in rows alone",
            "by_column": "goes by their distance in columns alone",
            "turned": "changes its sign when query and key change places",
        }
        for part, meaning in parts.items():
            heading = f"share of biases {part.replace('_', ' ')}, by layer (white noise)"
            text = _several(_mean(one[part]) for one in biases.values())
            noise = ", ".join(dict.fromkeys(_short(one["noise"][part]) for one in biases.values()))
            meaning = f"of the variance of biases over pairs of places, what {meaning}; mean over heads"
            yield heading, f"{meaning}; in brackets what a table of noise has on average", f"{text} ({noise})"
    if waves := offsets.get("frequencies"):
        sizes = [math.hypot(*pair) for heads in waves for pairs in heads for pair in pairs]
        yield (
            "frequencies, radians per patch",
            "of rotations, the least and the most",
            _several((min(sizes), max(sizes))),
        )


def _of_work(work: dict[str, Any]) -> Iterator[Line]:
    lines = {
        "probe_r2": (
            "place from tokens, R² by layer",
            "of a linear regression on images whose patches are shuffled one by one; 0 is chance; the input first",
        ),
        "probe_standard_error": ("its standard error", "over the images that it was tested on, a fifth of all"),
        "position_share": (
            "position in logits, by layer (shuffled)",
            "share of the variance of attention logits that a pair of places has in all images alike, less what chance "
            "gives, so that it can be below 0; patches shuffled",
        ),
        "position_share_pictures": (
            "position in logits, by layer (pictures)",
            "the same of pictures as they are, where places also differ by what is usually seen there",
        ),
        "attention_distance": ("attention distance, px, by layer", "mean distance of what is looked at, over heads"),
        "head_diversity": ("diversity of heads, bits, by layer", "Jensen–Shannon divergence of their mean attention"),
        "head_diversity_of_images": (
            "diversity of heads in an image, bits, by layer",
            "the same in each image, then averaged",
        ),
    }
    few = f" (few: shares and probes of fewer than {FEW} vary much)" if work["images"] < FEW else ""
    yield "test images watched", "of which a fifth tests the probe", f"{work['images']}{few}"
    for key, (heading, meaning) in lines.items():
        if key in work:
            yield heading, meaning, _several(work[key])
    prefers = {"nearby": "neighbouring places", "same_row": "places of a row", "same_column": "places of a column"}
    for what, said in prefers.items():
        if what in work["logits_prefer"]:
            meaning = "mean logit of such pairs less that of all others, patches shuffled, mean over heads"
            yield f"logits prefer {said}, by layer", meaning, _several(work["logits_prefer"][what])
    yield "attention distance if uniform, px", "of whoever looks at all patches alike", _short(work["uniform_distance"])
    if by_content := work.get("bias_by_content"):
        yield (
            "bias with likeness, correlation by layer",
            "between the bias of two patches and the cosine of their tokens, at equal offsets, mean over heads and images",
            _several(map(_mean, by_content["correlation"])),
        )


def _likeness(first: Inspection, other: Inspection) -> Iterator[Line]:
    a, b = first.subject.table, other.subject.table
    if first is not other and a is not None and b is not None and a.shape[:2] == b.shape[:2]:
        value = linear_cka(a.flatten(0, 1), b.flatten(0, 1))
        yield (
            "likeness to the first table (CKA)",
            "linear centred kernel alignment: 1 if one is a turn of the other",
            _short(value),
        )


def _mean(values: Sequence[float | None]) -> float:
    known = [value for value in values if value is not None and not math.isnan(value)]
    return sum(known) / len(known) if known else math.nan


def _several(values: Iterable[float | None]) -> str:
    return ", ".join(map(_short, values))


def _short(value: float | None) -> str:
    if value is None or math.isnan(value):
        return "–"
    return f"{value:.3g}" if abs(value) >= 1 else f"{value:.3f}"

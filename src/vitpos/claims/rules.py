"""Rules that judge a claim from measured numbers: each returns holds, does not hold or inconclusive, with the numbers.

A series has one value per seed. Differences are paired by seed, and intervals are Student's. The rules were fixed before
the runs that they judge.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from vitpos.metrics.statistics import ci_half_width

Series = Mapping[int, float]  # seed → value
Answer = Literal["holds", "does not hold", "inconclusive"]


@dataclass(frozen=True)
class Outcome:
    """What a rule finds: an answer and the numbers that it follows from, in one sentence."""

    answer: Answer
    numbers: str


def higher(
    first: Series,
    second: Series,
    *,
    by: float = 0.0,
    negligible: float | None = None,
    relative: bool = False,
    unit: str = "",
) -> Outcome:
    """``first`` is higher than ``second`` by more than ``by``.

    Holds if the 95 % interval of the mean difference excludes 0 and the mean exceeds ``by``. Does not hold if the 90 %
    interval lies within ±``negligible``, or the 95 % interval below 0.

    Args:
        first, second: Seed → value.
        by: The margin.
        negligible: A difference that counts as none; ``by`` by default.
        relative: Whether differences are divided by the value of ``second``.
        unit: Unit of the values, for the text.
    """
    negligible = by if negligible is None else negligible
    values = _differences(first, second, relative)
    mean, half, narrow = statistics.fmean(values), ci_half_width(values), ci_half_width(values, 0.9)
    if mean - half > 0 and mean > by:
        answer: Answer = "holds"
    elif abs(mean) + narrow < negligible or mean + half < 0:
        answer = "does not hold"
    else:
        answer = "inconclusive"
    return Outcome(
        answer, _difference_text(first, second, values, unit, f"more than {by:g}") + _needed(answer, values, by)
    )


def equal(first: Series, second: Series, *, within: float, unit: str = "") -> Outcome:
    """``first`` and ``second`` are equal within a margin.

    Holds if the 90 % interval of the mean difference lies within ±``within`` (two one-sided tests). Does not hold if the
    95 % interval excludes 0 and the mean is beyond the margin.

    Args:
        first, second: Seed → value.
        within: The margin.
        unit: Unit of the values, for the text.
    """
    values = _differences(first, second)
    mean, half, narrow = statistics.fmean(values), ci_half_width(values), ci_half_width(values, 0.9)
    if abs(mean) + narrow < within:
        answer: Answer = "holds"
    else:
        answer = "does not hold" if abs(mean) > max(half, within) else "inconclusive"
    text = _difference_text(first, second, values, unit, f"at most ±{within:g}")
    return Outcome(answer, text + _needed(answer, values, within))


def not_lower(first: Series, second: Series, *, by: float, unit: str = "") -> Outcome:
    """``first`` is not lower than ``second`` by more than ``by``.

    Holds if the 95 % interval of the mean difference lies above −``by``. Does not hold if that interval lies below 0 and
    the mean below −``by``.

    Args:
        first, second: Seed → value.
        by: The margin.
        unit: Unit of the values, for the text.
    """
    values = _differences(first, second)
    mean, half = statistics.fmean(values), ci_half_width(values)
    if mean - half > -by:
        answer: Answer = "holds"
    else:
        answer = "does not hold" if mean + half < 0 and mean < -by else "inconclusive"
    text = _difference_text(first, second, values, unit, f"above {-by:g}")
    return Outcome(answer, text + _needed(answer, values, by))


def above(value: Series, *, than: float, unit: str = "") -> Outcome:
    """The mean of ``value`` is above a number: its 95 % interval lies above it; does not hold if it lies below.

    Args:
        value: Seed → value.
        than: The number.
        unit: Unit of the values, for the text.
    """
    values = list(value.values())
    mean, half = statistics.fmean(values), ci_half_width(values)
    answer: Answer = "holds" if mean - half > than else "does not hold" if mean + half < than else "inconclusive"
    return Outcome(answer, f"{_interval(mean, half, unit)}, {_seeds(values)}; required: above {than:g}")


def below(value: Series, *, than: float, unit: str = "") -> Outcome:
    """The mean of ``value`` is below a number: its 95 % interval lies below it; does not hold if it lies above.

    Args:
        value: Seed → value.
        than: The number.
        unit: Unit of the values, for the text.
    """
    values = list(value.values())
    mean, half = statistics.fmean(values), ci_half_width(values)
    answer: Answer = "holds" if mean + half < than else "does not hold" if mean - half > than else "inconclusive"
    return Outcome(answer, f"{_interval(mean, half, unit)}, {_seeds(values)}; required: below {than:g}")


def near(value: Series, *, to: float, within: float, unit: str = "") -> Outcome:
    """The mean of ``value`` is a given number, such as chance, within a margin.

    Holds if its 90 % interval lies within the margin (two one-sided tests). Does not hold if its 95 % interval lies
    outside the margin.

    Args:
        value: Seed → value.
        to: The number.
        within: The margin.
        unit: Unit of the values, for the text.
    """
    values = list(value.values())
    mean, half, narrow = statistics.fmean(values), ci_half_width(values), ci_half_width(values, 0.9)
    if abs(mean - to) + narrow < within:
        answer: Answer = "holds"
    else:
        answer = "does not hold" if abs(mean - to) - half > within else "inconclusive"
    return Outcome(answer, f"{_interval(mean, half, unit)}, {_seeds(values)}; required: {to:g} ± {within:g}")


def every_seed(value: Series, *, least: float = -math.inf, most: float = math.inf, unit: str = "") -> Outcome:
    """``value`` is from ``least`` to ``most`` with every seed; one exception is enough for it not to hold.

    Args:
        value: Seed → value.
        least, most: The bounds, which count as inside.
        unit: Unit of the values, for the text.
    """
    low, high = min(value.values()), max(value.values())
    required = " and ".join(
        text for bound, text in ((least, f"at least {least:g}"), (most, f"at most {most:g}")) if math.isfinite(bound)
    )
    found = f"{low:.4g} to {high:.4g} {unit}".strip()
    inside = least <= low and high <= most
    return Outcome("holds" if inside else "does not hold", f"{found}, {_seeds(value)}; required: {required}")


def rising(values: Sequence[Series], *, at: Sequence[float], unit: str = "") -> Outcome:
    """The values rise along ``at``: the 95 % interval of the slope of a fitted line lies above 0.

    Does not hold if it lies below 0. A line is fitted for every seed.

    Args:
        values: One series (seed → value) for each number of ``at``.
        at: Where they were measured, such as mask ratios.
        unit: Unit of the values, for the text.
    """
    slopes = _slopes(values, at)
    mean, half = statistics.fmean(slopes), ci_half_width(slopes)
    answer: Answer = "holds" if mean > half else "does not hold" if mean < -half else "inconclusive"
    return Outcome(answer, f"slope {_interval(mean, half, unit)}, {_seeds(slopes)}; required: above 0")


def steps_rise(values: Sequence[Series], *, unit: str = "") -> Outcome:
    """Every step from one series to the next is upward: the 95 % interval of each mean difference lies above 0.

    Does not hold if one of these intervals lies below 0.

    Args:
        values: Two or more series (seed → value), in the order in which they should rise.
        unit: Unit of the values, for the text.
    """
    steps = [_differences(after, before) for before, after in pairwise(values)]
    found = [(statistics.fmean(step), ci_half_width(step)) for step in steps]
    if all(mean > half for mean, half in found):
        answer: Answer = "holds"
    else:
        answer = "does not hold" if any(mean < -half for mean, half in found) else "inconclusive"
    texts = ", ".join(_interval(mean, half, unit, sign=True) for mean, half in found)
    return Outcome(answer, f"steps {texts}, {_seeds(steps[0])}; required: each above 0")


def steeper(
    first: Sequence[Series], second: Sequence[Series], *, at: Sequence[float], times: float, unit: str = ""
) -> Outcome:
    """``first`` falls along ``at`` at least ``times`` as steeply as ``second``.

    Holds if the 95 % interval of (−slope of first) − times · (−slope of second) lies above 0, does not hold if below.

    Args:
        first, second: One series (seed → value) for each number of ``at``.
        at: Where they were measured, such as mask ratios.
        times: The factor.
        unit: Unit of the values, for the text.
    """
    falls = [[-slope for slope in _slopes(values, at)] for values in (first, second)]
    excess = [one - times * other for one, other in zip(*falls, strict=True)]
    mean, half = statistics.fmean(excess), ci_half_width(excess)
    answer: Answer = "holds" if mean > half else "does not hold" if mean < -half else "inconclusive"
    means = [statistics.fmean(fall) for fall in falls]
    return Outcome(
        answer,
        f"slopes −{means[0]:.4g} and −{means[1]:.4g} {unit}, excess {_interval(mean, half, unit)}, {_seeds(excess)}; "
        f"required: {times:g} times as steep".replace("−-", "+"),
    )


def ranked(values: Sequence[Series], *, published: Sequence[float], least: float) -> Outcome:
    """The means have the order of published numbers: Spearman's rank correlation is at least ``least``.

    Does not hold if it is lower.

    Args:
        values: One series (seed → value) for each published number.
        published: The numbers of the document.
        least: The smallest correlation.
    """
    means = [statistics.fmean(series.values()) for series in values]
    correlation = statistics.correlation(_ranks(means), _ranks(published))
    answer: Answer = "holds" if correlation >= least else "does not hold"
    text = (
        f"rank correlation {correlation:.2f} over {len(means)} rows, {_seeds(values[0])}; required: at least {least:g}"
    )
    return Outcome(answer, text)


def significant(value: Series, *, level: float = 0.01) -> Outcome:
    """The p-values of several trained models, combined by Fisher's method, are at most ``level``.

    Does not hold if the same is true of the opposite, 1 − p.

    Args:
        value: Seed → p-value of a one-sided test.
        level: Level of the combined test.
    """
    combined, opposite = fisher(list(value.values())), fisher([1 - p for p in value.values()])
    answer: Answer = "holds" if combined <= level else "does not hold" if opposite <= level else "inconclusive"
    p_values = ", ".join(f"{p:.2g}" for p in value.values())
    return Outcome(answer, f"p-values {p_values}, combined {combined:.2g}; required: at most {level:g}")


def fisher(p_values: Sequence[float]) -> float:
    """Returns the p-value of Fisher's combination of n p-values: P(χ² with 2n degrees of freedom ≥ −2 Σ log p).

    A p-value of 0 counts as the smallest float.
    """
    half = -sum(math.log(max(p, 5e-324)) for p in p_values)
    terms = [1.0]
    for k in range(1, len(p_values)):
        terms.append(terms[-1] * half / k)
    return min(1.0, math.exp(-half) * sum(terms))


RULES: dict[str, Callable[..., Outcome]] = {
    rule.__name__: rule
    for rule in (
        higher, equal, not_lower, above, below, near, every_seed, rising, steps_rise, steeper, ranked, significant,
    )
}  # fmt: skip


def _differences(first: Series, second: Series, relative: bool = False) -> list[float]:
    """Returns the differences first − second of each seed; divided by the second value if ``relative``."""
    return [(first[seed] - second[seed]) / (abs(second[seed]) if relative else 1) for seed in first]


def _slopes(values: Sequence[Series], at: Sequence[float]) -> list[float]:
    """Returns the slope of the least-squares line through (at, value) for each seed."""
    return [statistics.linear_regression(at, [series[seed] for series in values]).slope for seed in values[0]]


def _ranks(values: Sequence[float]) -> list[float]:
    """Returns the rank of each value, from 1; equal values share their mean rank."""
    return [sum(v < x for v in values) + (sum(v == x for v in values) + 1) / 2 for x in values]


def _interval(mean: float, half: float, unit: str, *, sign: bool = False) -> str:
    """Returns a text such as ``2.1 points (95 % interval 1.5 to 2.7)``."""
    bounds = "" if math.isinf(half) else f" (95 % interval {mean - half:.4g} to {mean + half:.4g})"
    return f"{mean:{'+' if sign else ''}.4g} {unit}".strip() + bounds


def _seeds(values: Sequence[float] | Series) -> str:
    return f"{len(values)} seed{'s' * (len(values) != 1)}"


def _difference_text(first: Series, second: Series, values: list[float], unit: str, required: str) -> str:
    """Returns both means, their mean difference with its interval, the number of seeds and the requirement."""
    means = " and ".join(f"{statistics.fmean(series.values()):.4g}" for series in (first, second))
    difference = _interval(statistics.fmean(values), ci_half_width(values), unit, sign=True)
    return f"{means}, difference {difference}, {_seeds(values)}; required: {required}"


def _needed(answer: Answer, values: list[float], margin: float) -> str:
    """Returns, for an inconclusive answer, about how many seeds would decide at the observed spread."""
    effect = abs(abs(statistics.fmean(values)) - margin)
    if answer != "inconclusive" or len(values) < 2 or not effect:
        return ""
    return f"; about {max(len(values) + 1, math.ceil((2 * statistics.stdev(values) / effect) ** 2))} seeds would decide"

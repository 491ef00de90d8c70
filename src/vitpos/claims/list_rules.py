"""Rules on lists of series: trends, order, the best of several, majorities, and combined p-values."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from itertools import pairwise

from vitpos.claims.outcomes import (
    Answer,
    Outcome,
    Series,
    difference_text,
    differences,
    interval_text,
    needed_text,
    seeds_text,
    sign,
)
from vitpos.metrics.statistics import ci_half_width


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
    answer = sign(mean, half)
    text = f"slope {interval_text(mean, half, unit)}, {seeds_text(slopes)}; required: above 0"
    return Outcome(answer, text + needed_text(answer, slopes, abs(mean)))


def steps_rise(values: Sequence[Series], *, unit: str = "") -> Outcome:
    """Every step from one series to the next is upward: the 95 % interval of each mean difference lies above 0.

    Does not hold if one of these intervals lies below 0.

    Args:
        values: Two or more series (seed → value), in the order in which they should rise.
        unit: Unit of the values, for the text.
    """
    steps = [differences(after, before) for before, after in pairwise(values)]
    found = [(statistics.fmean(step), ci_half_width(step)) for step in steps]
    if all(mean > half for mean, half in found):
        answer: Answer = "holds"
    else:
        answer = "does not hold" if any(mean < -half for mean, half in found) else "inconclusive"
    texts = ", ".join(interval_text(mean, half, unit, sign=True) for mean, half in found)
    return Outcome(answer, f"steps {texts}, {seeds_text(steps[0])}; required: each above 0")


def steeper(
    first: Sequence[Series], second: Sequence[Series], *, at: Sequence[float], times: float, unit: str = ""
) -> Outcome:
    """``first`` falls along ``at`` at least ``times`` as steeply as ``second``.

    Holds if the 95 % intervals of −slope of first, and of (−slope of first) − times · (−slope of second), lie above 0.
    Does not hold if one of them lies below 0.

    Args:
        first, second: One series (seed → value) for each number of ``at``.
        at: Where they were measured, such as mask ratios.
        times: The factor.
        unit: Unit of the values, for the text.
    """
    falls = [[-slope for slope in _slopes(values, at)] for values in (first, second)]
    excess = [one - times * other for one, other in zip(*falls, strict=True)]
    mean, half = statistics.fmean(excess), ci_half_width(excess)
    means = [statistics.fmean(fall) for fall in falls]
    signs = {sign(mean, half), sign(means[0], ci_half_width(falls[0]))}
    answer: Answer = "inconclusive"
    if len(signs) == 1 or "does not hold" in signs:
        answer = "does not hold" if "does not hold" in signs else signs.pop()
    slopes = f"slopes {-means[0]:.4g} and {-means[1]:.4g} {unit}".rstrip()
    excess_text = f"excess {interval_text(mean, half, unit)}, {seeds_text(excess)}"
    return Outcome(answer, f"{slopes}, {excess_text}; required: falling, {times:g} times as steep")


def sooner(first: Sequence[Series], second: Sequence[Series], *, at: Sequence[float], fraction: float) -> Outcome:
    """``first`` reaches a fraction of the last value of ``second`` sooner than ``second`` does.

    The difference is the first number of ``at`` at which ``second`` reaches it minus that of ``first``; what never does
    counts as one step after the last. Holds if its 95 % interval lies above 0. Does not hold if that interval lies below
    0, or the 90 % interval within ± half a step.

    Args:
        first, second: One series (seed → value) for each number of ``at``.
        at: Where they were measured, at equal steps, such as epochs.
        fraction: The fraction of the last value of ``second``.
    """
    step = at[1] - at[0]

    def reached(values: Sequence[Series], seed: int) -> float:
        target = fraction * second[-1][seed]
        return next((x for x, series in zip(at, values, strict=True) if series[seed] >= target), at[-1] + step)

    numbers = [[reached(values, seed) for seed in second[-1]] for values in (first, second)]
    lead = [other - one for one, other in zip(*numbers, strict=True)]
    mean, half, narrow = statistics.fmean(lead), ci_half_width(lead), ci_half_width(lead, 0.9)
    if mean > half:
        answer: Answer = "holds"
    else:
        answer = "does not hold" if mean < -half or abs(mean) + narrow < step / 2 else "inconclusive"
    means = " and ".join(f"{statistics.fmean(one):.4g}" for one in numbers)
    return Outcome(
        answer, f"reached at {means}, lead {interval_text(mean, half, '')}, {seeds_text(lead)}; required: above 0"
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
    text = f"rank correlation {correlation:.2f} over {len(means)} rows, {seeds_text(values[0])}"
    return Outcome(answer, f"{text}; required: at least {least:g}")


def significant(value: Series, *, level: float = 0.01, nulls: int = 200) -> Outcome:
    """The p-values of several trained models, combined by Fisher's method, are at most ``level``.

    Does not hold if the same is true of the opposite, 1 − p.

    Args:
        value: Seed → p-value of a one-sided test.
        level: Level of the combined test.
        nulls: Number of null models that p-values are computed from, so that 1 − p counts as at least 1/(nulls + 1).
    """
    combined = fisher(list(value.values()))
    opposite = fisher([max(1 - p, 1 / (nulls + 1)) for p in value.values()])
    answer: Answer = "holds" if combined <= level else "does not hold" if opposite <= level else "inconclusive"
    p_values = ", ".join(f"{p:.2g}" for p in value.values())
    return Outcome(answer, f"p-values {p_values}, combined {combined:.2g}; required: at most {level:g}")


def not_significant(value: Series, *, level: float = 0.01) -> Outcome:
    """The p-values of several trained models, combined by Fisher's method, are above ``level``; does not hold otherwise.

    It judges that nothing was found, not that there is nothing.

    Args:
        value: Seed → p-value.
        level: Level of the combined test.
    """
    combined = fisher(list(value.values()))
    p_values = ", ".join(f"{p:.2g}" for p in value.values())
    text = f"p-values {p_values}, combined {combined:.2g}; required: above {level:g}"
    return Outcome("holds" if combined > level else "does not hold", text)


def significant_effect(effect: Series, p_value: Series, *, level: float = 0.01) -> Outcome:
    """An effect is positive in several trained models: as `significant`, from its sign and its two-sided p-values.

    Args:
        effect: Seed → effect, whose sign is the side of the test.
        p_value: Seed → two-sided p-value.
        level: Level of the combined test.
    """
    one_sided = {seed: p / 2 if effect[seed] > 0 else 1 - p / 2 for seed, p in p_value.items()}
    found = significant(one_sided, level=level)
    effects = ", ".join(f"{one:+.3g}" for one in effect.values())
    return Outcome(found.answer, f"effects {effects}, one-sided {found.numbers}")


def each_below(values: Sequence[Series], *, than: float, unit: str = "") -> Outcome:
    """The means of all series are below a number, such as what the best of several attackers reconstructs.

    Holds if every 95 % interval lies below it, does not hold if one of them lies above.

    Args:
        values: Series, seed → value.
        than: The number.
        unit: Unit of the values, for the text.
    """
    found = [(statistics.fmean(one.values()), ci_half_width(list(one.values()))) for one in values]
    if all(mean + half < than for mean, half in found):
        answer: Answer = "holds"
    else:
        answer = "does not hold" if any(mean - half > than for mean, half in found) else "inconclusive"
    texts = "; ".join(interval_text(mean, half, unit) for mean, half in found)
    return Outcome(answer, f"{texts}, {seeds_text(values[0])}; required: each below {than:g}")


def most_higher(first: Sequence[Series], second: Sequence[Series], *, unit: str = "") -> Outcome:
    """In most pairs of series, ``first`` is higher than ``second``: in more than half of them, as a mean over seeds.

    Holds if the 95 % interval of the fraction of pairs lies above one half, does not hold if it lies below.

    Args:
        first, second: Series of the same length, seed → value, such as errors under different corruptions.
        unit: Unit of the values, for the text.
    """
    pairs = list(zip(first, second, strict=True))
    fractions = [statistics.fmean(one[seed] > other[seed] for one, other in pairs) for seed in first[0]]
    mean, half = statistics.fmean(fractions), ci_half_width(fractions)
    gap = statistics.fmean(x for one, other in pairs for x in differences(one, other))
    text = f"higher in {100 * mean:.1f} ± {100 * half:.1f} % of {len(pairs)} pairs, mean difference {gap:+.4g} {unit}"
    return Outcome(sign(mean - 0.5, half), f"{text.rstrip()}, {seeds_text(fractions)}; required: more than half")


def opposite_order(first: Sequence[Series], second: Sequence[Series], *, least: float) -> Outcome:
    """The means of ``first`` fall where those of ``second`` rise: Spearman's rank correlation is at most −``least``.

    Does not hold if it is higher.

    Args:
        first, second: Series of the same length, seed → value.
        least: The smallest size of the correlation.
    """
    means = [[statistics.fmean(one.values()) for one in series] for series in (first, second)]
    correlation = statistics.correlation(_ranks(means[0]), _ranks(means[1]))
    text = f"rank correlation {correlation:.2f} over {len(first)} rows, {seeds_text(first[0])}"
    return Outcome("holds" if correlation <= -least else "does not hold", f"{text}; required: at most {-least:g}")


def among_best(value: Series, others: Sequence[Series], *, unit: str = "") -> Outcome:
    """``value`` is in the group that cannot be distinguished from the best.

    Holds if it has the highest mean, or if the 95 % interval of the mean difference to the one of ``others`` that has
    includes 0; otherwise does not hold.

    Args:
        value: Seed → value.
        others: The series that it is compared with.
        unit: Unit of the values, for the text.
    """
    best = max(others, key=lambda series: statistics.fmean(series.values()))
    values = differences(value, best)
    mean, half = statistics.fmean(values), ci_half_width(values)
    required = "not below the best of the others"
    return Outcome(
        "holds" if mean + half >= 0 else "does not hold", difference_text(value, best, values, unit, required)
    )


def fisher(p_values: Sequence[float]) -> float:
    """Returns the p-value of Fisher's combination of n p-values: P(χ² with 2n degrees of freedom ≥ −2 Σ log p).

    A p-value of 0 counts as the smallest float.
    """
    half = -sum(math.log(max(p, 5e-324)) for p in p_values)
    terms = [1.0]
    for k in range(1, len(p_values)):
        terms.append(terms[-1] * half / k)
    return min(1.0, math.exp(-half) * sum(terms))


def _slopes(values: Sequence[Series], at: Sequence[float]) -> list[float]:
    """Returns the slope of the least-squares line through (at, value) for each seed."""
    return [statistics.linear_regression(at, [series[seed] for series in values]).slope for seed in values[0]]


def _ranks(values: Sequence[float]) -> list[float]:
    """Returns the rank of each value, from 1; equal values share their mean rank."""
    return [sum(v < x for v in values) + (sum(v == x for v in values) + 1) / 2 for x in values]

"""Rules that judge a claim from measured numbers: each returns holds, does not hold or inconclusive, with the numbers.

A series has one value per seed. Differences are paired by seed, and intervals are Student's. The rules were fixed before
the runs that they judge.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable

from vitpos.claims.joint_rules import only_in_task, regained
from vitpos.claims.list_rules import (
    among_best,
    each_below,
    most_higher,
    not_significant,
    opposite_order,
    ranked,
    rising,
    significant,
    significant_effect,
    sooner,
    steeper,
    steps_rise,
)
from vitpos.claims.outcomes import (
    Answer,
    Outcome,
    Series,
    difference_text,
    differences,
    interval_text,
    level_unit,
    needed_text,
    seeds_text,
    sign,
)
from vitpos.metrics.statistics import ci_half_width


def higher(
    first: Series,
    second: Series,
    *,
    by: float = 0.0,
    negligible: float | None = None,
    relative: bool = False,
    most: float = math.inf,
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
        most: Values above it count as it, such as 60 dB for images whose pixels are exact.
        unit: Unit of the values, for the text.
    """
    first, second = ({seed: min(value, most) for seed, value in series.items()} for series in (first, second))
    negligible = by if negligible is None else negligible
    values = differences(first, second, relative)
    mean, half, narrow = statistics.fmean(values), ci_half_width(values), ci_half_width(values, 0.9)
    if mean - half > 0 and mean > by:
        answer: Answer = "holds"
    elif abs(mean) + narrow < negligible or mean + half < 0:
        answer = "does not hold"
    else:
        answer = "inconclusive"
    distance = mean if mean > by else max(negligible - abs(mean), -mean)
    none = f" (below {negligible:g}: none)" if negligible not in (0, by) else ""
    text = difference_text(first, second, values, unit, f"more than {by:g}{none}")
    return Outcome(answer, text + needed_text(answer, values, distance))


def equal(first: Series, second: Series, *, within: float, unit: str = "") -> Outcome:
    """``first`` and ``second`` are equal within a margin.

    Holds if the 90 % interval of the mean difference lies within ±``within`` (two one-sided tests). Does not hold if the
    95 % interval excludes 0 and the mean is beyond the margin.

    Args:
        first, second: Seed → value.
        within: The margin.
        unit: Unit of the values, for the text.
    """
    values = differences(first, second)
    mean, half, narrow = statistics.fmean(values), ci_half_width(values), ci_half_width(values, 0.9)
    if abs(mean) + narrow < within:
        answer: Answer = "holds"
    else:
        answer = "does not hold" if abs(mean) > max(half, within) else "inconclusive"
    text = difference_text(first, second, values, unit, f"90 % interval within ±{within:g}", narrow=True)
    distance = within - abs(mean) if abs(mean) < within else abs(mean)
    return Outcome(answer, text + needed_text(answer, values, distance))


def not_lower(first: Series, second: Series, *, by: float, unit: str = "") -> Outcome:
    """``first`` is not lower than ``second`` by more than ``by``.

    Holds if the 95 % interval of the mean difference lies above −``by``. Does not hold if that interval lies below 0 and
    the mean below −``by``.

    Args:
        first, second: Seed → value.
        by: The margin.
        unit: Unit of the values, for the text.
    """
    values = differences(first, second)
    mean, half = statistics.fmean(values), ci_half_width(values)
    if mean - half > -by:
        answer: Answer = "holds"
    else:
        answer = "does not hold" if mean + half < 0 and mean < -by else "inconclusive"
    text = difference_text(first, second, values, unit, f"above {-by:g}")
    return Outcome(answer, text + needed_text(answer, values, mean + by if mean > -by else -mean))


def above(value: Series, *, than: float, unit: str = "") -> Outcome:
    """The mean of ``value`` is above a number: its 95 % interval lies above it; does not hold if it lies below.

    Args:
        value: Seed → value.
        than: The number.
        unit: Unit of the values, for the text.
    """
    return _one_sided(value, than, unit, "above", 1)


def below(value: Series, *, than: float, unit: str = "") -> Outcome:
    """The mean of ``value`` is below a number: its 95 % interval lies below it; does not hold if it lies above.

    Args:
        value: Seed → value.
        than: The number.
        unit: Unit of the values, for the text.
    """
    return _one_sided(value, than, unit, "below", -1)


def _one_sided(value: Series, than: float, unit: str, side: str, direction: int) -> Outcome:
    """Returns whether the 95 % interval of the mean lies above ``than`` (``direction`` 1) or below it (−1)."""
    values = list(value.values())
    mean, half = statistics.fmean(values), ci_half_width(values)
    answer = sign(direction * (mean - than), half)
    text = f"{interval_text(mean, half, level_unit(unit))}, {seeds_text(values)}; required: {side} {than:g}"
    return Outcome(answer, text + needed_text(answer, values, abs(mean - than)))


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
    text = interval_text(mean, half, level_unit(unit))
    text = f"{text}, {seeds_text(values)}; required: {to:g} ± {within:g}"
    return Outcome(answer, text + needed_text(answer, values, abs(within - abs(mean - to))))


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
    bounds = dict.fromkeys((f"{low:.4g}", f"{high:.4g}"))  # one if all seeds agree
    found = f"{' to '.join(bounds)} {level_unit(unit)}".strip()
    inside = least <= low and high <= most
    return Outcome("holds" if inside else "does not hold", f"{found}, {seeds_text(value)}; required: {required}")


def resists(value: Series, other: Series, *, most: float, exposed: float, unit: str = "") -> Outcome:
    """A defense resists an attacker, judged together with another attacker on the same model.

    An attacker fails if the 95 % interval of its mean lies below ``most``, and succeeds if it lies above ``exposed``.
    Holds if the attacker fails, does not hold if it succeeds. Inconclusive if one of the two attackers does neither.

    Args:
        value: Seed → what the attacker reconstructs, such as decibels above the image's mean color.
        other: The same for the other attacker.
        most: The most that an attacker may reconstruct who fails.
        exposed: The least that an attacker reconstructs who succeeds.
        unit: Unit of the values, for the text.
    """
    fails, other_fails = (below(series, than=most).answer == "holds" for series in (value, other))
    succeeds, other_succeeds = (above(series, than=exposed).answer == "holds" for series in (value, other))
    if fails and (other_fails or other_succeeds):
        answer: Answer = "holds"
    else:
        answer = "does not hold" if succeeds and (other_succeeds or other_fails) else "inconclusive"
    values = list(value.values())
    found = interval_text(statistics.fmean(values), ci_half_width(values), unit)
    return Outcome(answer, f"{found}, {seeds_text(values)}; required: at most {most:g}, refuted above {exposed:g}")


def measured(value: Series, *, unit: str = "") -> Outcome:
    """No rule: gives the mean of ``value`` and its 95 % interval, for numbers on which there is nothing to judge.

    Args:
        value: Seed → value.
        unit: Unit of the values, for the text.
    """
    values = list(value.values())
    mean = interval_text(statistics.fmean(values), ci_half_width(values), level_unit(unit))
    return Outcome("measured", f"{mean}, {seeds_text(values)}")


RULES: dict[str, Callable[..., Outcome]] = {
    rule.__name__: rule
    for rule in (
        higher, equal, not_lower, above, below, near, every_seed, resists, rising, steps_rise, steeper, sooner, ranked,
        opposite_order, each_below, most_higher, significant, not_significant, significant_effect, among_best, regained,
        only_in_task, measured,
    )
}  # fmt: skip

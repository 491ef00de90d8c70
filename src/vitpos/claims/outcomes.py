"""What a rule returns, and the texts of intervals and differences in it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from vitpos.metrics.statistics import ci_half_width, t_quantile

Series = Mapping[int, float]  # seed → value
Answer = Literal["holds", "does not hold", "inconclusive", "measured"]


@dataclass(frozen=True)
class Outcome:
    """What a rule finds: an answer and the numbers that it follows from, in one sentence."""

    answer: Answer
    numbers: str


def differences(first: Series, second: Series, relative: bool = False) -> list[float]:
    """Returns the differences first − second of each seed; divided by the second value if ``relative``."""
    return [(first[seed] - second[seed]) / (abs(second[seed]) if relative else 1) for seed in first]


def interval_text(mean: float, half: float, unit: str, *, sign: bool = False) -> str:
    """Returns a text such as ``2.1 points (95 % interval 1.5 to 2.7)``."""
    bounds = "" if math.isinf(half) else f" (95 % interval {mean - half:.4g} to {mean + half:.4g})"
    return f"{mean:{'+' if sign else ''}.4g} {unit}".strip() + bounds


def level_unit(unit: str) -> str:
    """Returns the unit of values whose differences have the unit ``unit``: percent for percentage points."""
    return "%" if unit == "points" else unit


def seeds_text(values: Sequence[float] | Series) -> str:
    """Returns a text such as ``5 seeds``."""
    return f"{len(values)} seed{'s' * (len(values) != 1)}"


def difference_text(
    first: Series, second: Series, values: list[float], unit: str, required: str, *, narrow: bool = False
) -> str:
    """Returns both means, their mean difference with its interval, the number of seeds and the requirement.

    ``narrow`` adds the 90 % interval, by which equality is judged.
    """
    means = " and ".join(
        f"{statistics.fmean(series.values()):.4g} {level_unit(unit)}".rstrip() for series in (first, second)
    )
    mean, half = statistics.fmean(values), ci_half_width(values, 0.9)
    difference = interval_text(mean, ci_half_width(values), unit, sign=True)
    if narrow and math.isfinite(half):
        difference += f" (90 % interval {mean - half:.4g} to {mean + half:.4g})"
    return f"{means}, difference {difference}, {seeds_text(values)}; required: {required}"


def sign(mean: float, half: float) -> Answer:
    """Returns whether the interval mean ± half lies above 0 (holds), below 0 (does not hold) or includes it."""
    return "holds" if mean > half else "does not hold" if mean < -half else "inconclusive"


def needed_text(answer: Answer, values: Sequence[float], distance: float) -> str:
    """Returns, for an inconclusive answer, about how many seeds would decide if mean and spread stay as they are.

    Args:
        answer: The answer; the text is empty unless it is inconclusive.
        values: One value per seed.
        distance: Distance from their mean to the bound that its interval must not include.
    """
    if answer != "inconclusive" or len(values) < 2 or distance <= 0:
        return ""
    ratio = statistics.stdev(values) / distance
    if ratio > 5:
        return "; more than 100 seeds would be needed"
    seeds = max(len(values) + 1, math.ceil((1.96 * ratio) ** 2))
    while t_quantile(seeds - 1) * ratio >= math.sqrt(seeds):
        seeds += 1
    return f"; about {seeds} seeds would decide"

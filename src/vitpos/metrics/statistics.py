"""Student t intervals and tests for a few seeds: means, paired differences, many comparisons at once."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache


@cache
def t_quantile(df: int, confidence: float = 0.95) -> float:
    """Returns t such that Student's t with ``df`` degrees of freedom is in [−t, t] with probability ``confidence``."""
    low, high = 0.0, 1.0
    while t_p_value(high, df) > 1 - confidence:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if t_p_value(middle, df) > 1 - confidence else (low, middle)
    return high


def t_p_value(t: float, df: int) -> float:
    """Returns the two-sided p-value of Student's ``t`` with ``df`` degrees of freedom, by the exact series for integer df.

    With θ = arctan(|t|/√df): 1 − sin θ (1 + Σ_k Π_(i≤k) (2i−1)/(2i) · cos²ᵏ θ) for even df, k = 1 … df/2 − 1; for odd df
    1 − 2/π (θ + sin θ cos θ (1 + Σ_k Π_(i≤k) 2i/(2i+1) · cos²ᵏ θ)), k = 1 … (df−3)/2, without the second term for df = 1.
    """
    theta = math.atan(abs(t) / math.sqrt(df))
    sin, cos, odd = math.sin(theta), math.cos(theta), df % 2
    terms = [1.0]
    for i in range(1, (df - 1) // 2 if odd else df // 2):
        terms.append(terms[-1] * cos**2 * (2 * i / (2 * i + 1) if odd else (2 * i - 1) / (2 * i)))
    inside = 2 / math.pi * (theta + (sin * cos * sum(terms) if df > 1 else 0)) if odd else sin * sum(terms)
    return max(0.0, 1 - inside)


def holm(p_values: Sequence[float]) -> list[float]:
    """Returns the p-values adjusted for multiple tests by Holm's step-down method, in the order of ``p_values``."""
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    adjusted, largest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted


def ci_half_width(values: Sequence[float], confidence: float = 0.95) -> float:
    """Returns half the width of the confidence interval of the mean of ``values``; infinite for a single value.

    The values are assumed to be normally distributed.
    """
    if len(values) < 2:
        return math.inf
    return t_quantile(len(values) - 1, confidence) * statistics.stdev(values) / math.sqrt(len(values))


def log_log_slope(curve: Mapping[float, float]) -> float:
    """Returns the exponent b of the power law y = a·xᵇ that fits log y over log x best by least squares.

    ``curve`` is x → y with two or more different x; NaN if one of the numbers is not above 0.
    """
    if min(*curve, *curve.values()) <= 0 or len(curve) < 2:
        return math.nan
    x, y = ([math.log(value) for value in values] for values in (curve.keys(), curve.values()))
    return statistics.linear_regression(x, y).slope


def wilson_interval(successes: int, trials: int) -> tuple[float, float]:
    """Returns the lower and upper bound of Wilson's 95 % confidence interval of a probability, from 0 to 1.

    ``successes`` of ``trials`` independent trials, 1 or more, succeeded.
    """
    z = 1.959964  # 97.5 % quantile of the normal distribution
    rate, weight = successes / trials, 1 + z**2 / trials
    middle = (rate + z**2 / (2 * trials)) / weight
    half = z / weight * math.sqrt(rate * (1 - rate) / trials + z**2 / (4 * trials**2))
    return max(0.0, middle - half), min(1.0, middle + half)


@dataclass(frozen=True)
class Difference:
    """The mean paired difference of two methods over the seeds that both have.

    Args:
        mean: Mean over seeds of the value of the first method minus that of the second.
        half_width: Half the width of the 95 % confidence interval of the mean; infinite for one seed.
        seeds: Number of seeds that both methods have.
    """

    mean: float
    half_width: float
    seeds: int

    @property
    def significant(self) -> bool:
        """Returns whether the 95 % confidence interval of the mean difference excludes 0."""
        return abs(self.mean) > self.half_width


def paired_difference(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Difference | None:
    """Returns the mean of ``ours - theirs`` over the seeds that both have, with its 95 % interval; None if there are none.

    Args:
        ours, theirs: seed → value, such as the accuracy of two encodings.
    """
    differences = [ours[seed] - theirs[seed] for seed in ours if seed in theirs]
    if not differences:
        return None
    return Difference(statistics.fmean(differences), ci_half_width(differences), len(differences))

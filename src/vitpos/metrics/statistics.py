"""Student t confidence intervals of means and of paired differences over a few seeds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

T_QUANTILES = (  # 97.5 % quantile of Student's t for 1, 2, … 30 degrees of freedom
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131),
    *(2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)


def t_quantile(df: int) -> float:
    """Returns the 97.5 % quantile of Student's t with ``df`` degrees of freedom, to three digits.

    From a table up to 30 degrees of freedom, above by the Cornish–Fisher expansion.
    """
    if df <= len(T_QUANTILES):
        return T_QUANTILES[df - 1]
    z = 1.959964  # 97.5 % quantile of the normal distribution
    return z + (z**3 + z) / (4 * df) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * df**2)


def ci_half_width(values: Sequence[float]) -> float:
    """Returns half the width of the 95 % confidence interval of the mean of ``values``; infinite for a single value.

    The values are assumed to be normally distributed.
    """
    if len(values) < 2:
        return math.inf
    return t_quantile(len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))


@dataclass(frozen=True)
class Difference:
    """Mean paired difference of two methods over the seeds both have, half the width of its 95 % interval, seed count."""

    mean: float
    half_width: float
    seeds: int

    @property
    def significant(self) -> bool:
        """Returns whether the 95 % interval excludes 0."""
        return abs(self.mean) > self.half_width


def paired_difference(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Difference | None:
    """Returns the mean of ``ours - theirs`` over the seeds both have, with its 95 % interval; None without such a seed.

    Args:
        ours, theirs: seed → value, such as the accuracy of two encodings.
    """
    differences = [ours[seed] - theirs[seed] for seed in ours if seed in theirs]
    if not differences:
        return None
    return Difference(statistics.fmean(differences), ci_half_width(differences), len(differences))

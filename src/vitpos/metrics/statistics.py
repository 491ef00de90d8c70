"""How sure a number over a few seeds is: intervals of means and of paired differences, by Student's t."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

T = (  # the 97.5 % quantile of Student's distribution for 1, 2, … 30 degrees of freedom
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131),
    *(2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)


def quantile(freedom: int) -> float:
    """The 97.5 % quantile of Student's distribution, to three digits; above 30 degrees of freedom by Cornish and Fisher."""
    if freedom <= len(T):
        return T[freedom - 1]
    z = 1.959964  # of the normal distribution
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


def half_width(values: Sequence[float]) -> float:
    """Half of the 95 % interval of the mean of some values, which are taken as normal; infinite for one."""
    if len(values) < 2:
        return math.inf
    return quantile(len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))


@dataclass(frozen=True)
class Difference:
    """The mean difference of two runs over the seeds that both have, and half of its 95 % interval."""

    mean: float
    half: float
    seeds: int

    @property
    def beyond_noise(self) -> bool:
        """Whether the interval leaves out 0."""
        return abs(self.mean) > self.half


def paired(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Difference | None:
    """The difference of values by seed; None where no seed is shared."""
    differences = [ours[seed] - theirs[seed] for seed in ours if seed in theirs]
    return Difference(statistics.fmean(differences), half_width(differences), len(differences)) if differences else None

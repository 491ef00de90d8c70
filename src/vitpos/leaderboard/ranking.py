"""Ranks encodings by a metric over seeds, and tests which differences are larger than the noise between seeds.

The values are modeled as y(encoding, seed) = mean(encoding) + effect(seed) + noise, with one variance of the noise for all
encodings. Three seeds give one encoding two degrees of freedom; forty encodings give the common variance some eighty, so
that small differences can be found. All pairs are compared by t-tests, adjusted by Holm's method at the level of 5 %.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations

import numpy as np

from vitpos.metrics.statistics import holm, t_p_value, t_quantile

LEVEL = 0.05
Values = Mapping[str, Mapping[int, float]]  # encoding → seed → value


@dataclass(frozen=True)
class Prediction:
    """The value of an encoding and seed, its prediction from all other values, and the 95 % prediction interval.

    The interval is ``predicted`` ± ``half_width``. It includes the uncertainty of the encoding's mean and of the effect of
    the seed, both estimated without the value.
    """

    value: float
    predicted: float
    half_width: float


@dataclass(frozen=True)
class Ranking:
    """The encodings ranked by one metric: a fitted model value = mean of the encoding + effect of the seed + noise.

    Args:
        means: Least-squares mean of each encoding over all seeds of the ranking, also those that it lacks; best first.
        covariance: Covariance matrix (encodings, encodings) of these means, in the same order.
        df: Degrees of freedom of the residual variance.
        std: Residual standard deviation: the noise between seeds.
        predictions: (encoding, seed) → the value and its prediction from all other values.
    """

    means: dict[str, float]
    covariance: np.ndarray
    df: int
    std: float
    predictions: Mapping[tuple[str, int], Prediction] = field(default_factory=dict)

    def half_width(self, encoding: str) -> float:
        """Returns half the width of the 95 % confidence interval of an encoding's mean."""
        index = list(self.means).index(encoding)
        return t_quantile(self.df) * math.sqrt(self.covariance[index, index])

    def difference(self, one: str, other: str) -> tuple[float, float]:
        """Returns (mean of ``one`` minus mean of ``other``, half the width of its 95 % confidence interval).

        The interval is not adjusted for multiple comparisons.
        """
        return self.means[one] - self.means[other], t_quantile(self.df) * self._error(one, other)

    @property
    def well_predicted(self) -> int:
        """Number of values that lie in the 95 % prediction interval which all other values give for them."""
        return sum(abs(one.value - one.predicted) <= one.half_width for one in self.predictions.values())

    @cached_property
    def significant_pairs(self) -> set[frozenset[str]]:
        """Pairs of encodings whose means differ significantly, at the level of 5 % for all pairs together (Holm)."""
        pairs = list(combinations(self.means, 2))
        p_values = [self._p_value(*pair) for pair in pairs]
        return {frozenset(pair) for pair, p in zip(pairs, holm(p_values), strict=True) if p < LEVEL}

    @property
    def fraction_significant(self) -> float:
        """Fraction of all pairs of encodings whose means differ significantly."""
        count = len(self.means) * (len(self.means) - 1) // 2
        return len(self.significant_pairs) / count if count else 0.0

    @cached_property
    def groups(self) -> dict[str, str]:
        """Dictionary encoding → group letters; two encodings that share a letter do not differ significantly."""
        order = list(self.means)
        sets = [frozenset(order)]
        for pair in sorted(self.significant_pairs, key=lambda pair: sorted(map(order.index, pair))):
            one, other = sorted(pair, key=order.index)
            split = [s - {name} for s in sets if pair <= s for name in (one, other)]
            sets = _maximal([s for s in sets if not pair <= s] + split)
        sets.sort(key=lambda s: sorted(map(order.index, s)))
        return {name: "".join(_letter(i) for i, s in enumerate(sets) if name in s) for name in order}

    @property
    def best(self) -> list[str]:
        """The encoding with the best mean, followed by those that do not differ significantly from it."""
        return list(self.not_different_from_first(self.means))

    def not_different_from_first(self, encodings: Iterable[str]) -> tuple[str, ...]:
        """Returns the best of these encodings, followed by those of them that do not differ significantly from it."""
        wanted = set(encodings)
        first, *others = [name for name in self.means if name in wanted] or [""]
        rest = [name for name in others if frozenset((first, name)) not in self.significant_pairs]
        return tuple(filter(None, (first, *rest)))

    def _error(self, one: str, other: str) -> float:
        i, j = (list(self.means).index(name) for name in (one, other))
        c = self.covariance
        return math.sqrt(max(0.0, c[i, i] + c[j, j] - 2 * c[i, j]))

    def _p_value(self, one: str, other: str) -> float:
        error, gap = self._error(one, other), self.means[one] - self.means[other]
        return t_p_value(gap / error, self.df) if error else float(gap == 0)


def rank(values: Values, *, higher_is_better: bool = True) -> Ranking | None:
    """Ranks the encodings that have two seeds or more; returns None if there are too few values to compare them.

    Fits value = mean of the encoding + effect of the seed + noise by least squares. Encodings may lack seeds. Those that
    share no seed with the others, directly or through a third encoding, cannot be compared with them and are left out.

    Args:
        values: Encoding → seed → value of one metric.
        higher_is_better: Whether the encoding with the highest mean is the first, or the one with the lowest.
    """
    ranked = _connected({name: by_seed for name, by_seed in values.items() if len(by_seed) > 1})
    names, seeds = list(ranked), sorted({seed for by_seed in ranked.values() for seed in by_seed})
    df = sum(map(len, ranked.values())) - len(names) - len(seeds) + 1
    if len(names) < 2 or df < 1:
        return None
    rows = [(names.index(n), seeds.index(s), value) for n, by_seed in ranked.items() for s, value in by_seed.items()]
    design = np.zeros((len(rows), len(names) + len(seeds)))
    for i, (name, seed, _) in enumerate(rows):
        design[i, name] = design[i, len(names) + seed] = 1
    observed = np.array([value for _, _, value in rows])
    constrained = np.vstack([design, np.r_[np.zeros(len(names)), np.ones(len(seeds))]])  # seed effects sum to zero
    inverse = np.linalg.inv(constrained.T @ constrained)
    solution = inverse @ design.T @ observed
    residuals = observed - design @ solution
    std = math.sqrt(float(np.square(residuals).sum()) / df)
    std = std if std > 1e-12 * float(np.abs(observed).max()) else 0.0  # rounding errors of equal values
    # the constraint is not an observation: Cov = σ² (AᵀA)⁻¹ XᵀX (AᵀA)⁻¹ with the design X, and A = X with the constraint
    covariance = std**2 * (inverse @ design.T @ design @ inverse)[: len(names), : len(names)]
    order = sorted(range(len(names)), key=lambda i: -solution[i] if higher_is_better else solution[i])
    means = {names[i]: float(solution[i]) for i in order}
    leverages = np.einsum("ij,jk,ik->i", design, inverse, design)  # diagonal of the projection on the fit
    predictions = _leave_one_out(observed, residuals, leverages, df)
    keys = [(names[n], seeds[s]) for n, s, _ in rows]
    found = {key: one for key, one in zip(keys, predictions, strict=True) if one}
    return Ranking(means, covariance[np.ix_(order, order)], df, std, found)


def _leave_one_out(
    observed: np.ndarray, residuals: np.ndarray, leverages: np.ndarray, df: int
) -> list[Prediction | None]:
    """Returns the prediction of each value by a least-squares fit of all others; None for one that the fit needs.

    The prediction error without value i is e_i/(1 − h_i), with residual e_i and leverage h_i. Its variance is that of the
    noise, estimated without value i, divided by 1 − h_i.
    """
    found: list[Prediction | None] = []
    for value, residual, leverage in zip(observed, residuals, leverages, strict=True):
        rest = 1 - leverage
        if rest < 1e-9 or df < 2:
            found.append(None)
            continue
        variance = max(0.0, float(np.square(residuals).sum()) - residual**2 / rest) / (df - 1)
        half_width = t_quantile(df - 1) * math.sqrt(variance / rest)
        found.append(Prediction(float(value), float(value - residual / rest), half_width))
    return found


def _connected(values: Values) -> Values:
    """Returns ``values`` (encoding → seed → value) of the largest group of encodings that can be compared with each other.

    Two encodings are in one group if they share a seed, directly or through other encodings. Of groups of the same size,
    the first is returned.
    """
    groups: list[list[str]] = []
    for name, by_seed in values.items():
        shared = [group for group in groups if any(by_seed.keys() & values[other].keys() for other in group)]
        groups = [group for group in groups if group not in shared] + [[*(n for group in shared for n in group), name]]
    largest = max(groups, key=len, default=[])
    return {name: by_seed for name, by_seed in values.items() if name in largest}


def _maximal(sets: Sequence[frozenset[str]]) -> list[frozenset[str]]:
    unique = list(dict.fromkeys(sets))
    return [s for s in unique if not any(s < other for other in unique)]


def _letter(index: int) -> str:
    return chr(ord("a") + index) if index < 26 else f"({index})"

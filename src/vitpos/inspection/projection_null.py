"""Compares a projection of a position table to the plane with projections of null tables, which have no positions."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from vitpos.errors import InputError
from vitpos.inspection.table_projection import (
    grid_residual,
    principal_components,
    procrustes_distances,
    trustworthiness,
)
from vitpos.inspection.table_stats import center, flatten_table
from vitpos.patches import make_generator, seeded_permutations


@dataclass(frozen=True)
class NullComparison:
    """A number of a projection beside the same number of null tables, which have no positions.

    expected: mean over the null tables. p: one-sided p-value, (1 + null tables at least as grid-like) / (1 + null
    tables). All are NaN if the number is undefined.
    """

    value: float
    expected: float
    p: float


UNDEFINED = NullComparison(math.nan, math.nan, math.nan)


def residual_null(points: Tensor, *, shuffles: int = 2000, seed: int = 0) -> NullComparison:
    """Compares the Procrustes distance of projected positions (R, C, 2) from their grid with that of null tables.

    A smaller distance is more grid-like. The null tables are the same points at permuted positions, so the comparison
    holds for any projection.

    Args:
        shuffles: number of permutations.
    """
    _check(shuffles=shuffles)
    own = grid_residual(points)
    if own is None:
        return UNDEFINED
    x = center(flatten_table(points))
    permuted = x[seeded_permutations(shuffles, len(x), seed=seed)]  # (shuffles, N, 2)
    return _compare(own, procrustes_distances(permuted, (points.shape[0], points.shape[1])), smaller=True)


def trustworthiness_null(table: Tensor, *, tables: int = 200, seed: int = 0) -> NullComparison:
    """Compares the trustworthiness of the PCA projection of a table (R, C, D) with that of null tables.

    It is larger if neighbors in the projection are neighbors in the table, whatever their positions are. Therefore the
    null tables are white noise of the same shape, each with its own projection.

    Args:
        tables: number of null tables.
    """
    _check(tables=tables)
    own = trustworthiness(table, principal_components(table))
    if own is None:
        return UNDEFINED
    generator, values = make_generator(seed), []
    for _ in range(tables):
        noise = torch.randn(table.shape, generator=generator, dtype=torch.float64)
        values.append(trustworthiness(noise, principal_components(noise)) or 0.0)
    return _compare(own, torch.tensor(values, dtype=torch.float64), smaller=False)


def _compare(own: float, null: Tensor, *, smaller: bool) -> NullComparison:
    extreme = (null <= own + 1e-12) if smaller else (null >= own - 1e-12)
    return NullComparison(own, null.mean().item(), (1 + int(extreme.sum())) / (1 + len(null)))


def _check(**counts: int) -> None:
    for name, count in counts.items():
        if count < 1:
            raise InputError(f"a comparison with null tables got {name}={count}; use 1 or more")

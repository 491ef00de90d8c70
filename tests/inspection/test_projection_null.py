"""Projections of planes differ from those of null tables, projections of noise do not."""

import math

import pytest
import torch

from tests.inspection.tables import noise, plane
from vitpos.errors import InputError
from vitpos.inspection.projection_null import residual_null, trustworthiness_null
from vitpos.inspection.table_projection import grid_residual, principal_components
from vitpos.patches import seeded_permutations

GRID = (4, 7)


def test_a_plane_is_a_grid_and_keeps_neighbors():
    table = plane(GRID, 12, 0.3)
    points = principal_components(table)
    residual, kept = residual_null(points, shuffles=400), trustworthiness_null(table, tables=100)
    assert residual.value == pytest.approx(grid_residual(points)) and residual.value < 0.1 < 0.8 < residual.expected
    assert residual.p == pytest.approx(1 / 401) and kept.p == pytest.approx(1 / 101)
    assert kept.value > 0.95 > kept.expected


def test_p_values_of_noise_are_uniform():
    """Of 60 tables of noise, about 6 have a p-value up to 0.1; 14 or more have a probability of 0.003."""
    tables = [noise(GRID, 12, seed) for seed in range(60)]
    residuals = [residual_null(principal_components(table), shuffles=99, seed=1).p for table in tables]
    kept = [trustworthiness_null(table, tables=19, seed=1).p for table in tables[:30]]
    for p_values in (residuals, kept):
        assert sum(p <= 0.1 for p in p_values) < 14 and sum(p > 0.5 for p in p_values) > len(p_values) / 4


def test_the_null_residuals_are_those_of_permuted_positions():
    points = principal_components(noise(GRID, 5))
    orders = seeded_permutations(7, 28, seed=3)
    expected = [grid_residual(points.flatten(0, 1)[order].unflatten(0, GRID)) for order in orders]
    found = residual_null(points, shuffles=7, seed=3)
    assert found.expected == pytest.approx(sum(expected) / 7)
    assert found.p == pytest.approx((1 + sum(value <= found.value for value in expected)) / 8)


def test_too_few_positions_are_undefined_and_no_null_tables_an_error():
    assert math.isnan(residual_null(torch.zeros(3, 4, 2)).p)
    assert math.isnan(trustworthiness_null(noise((1, 2), 3), tables=3).p)
    with pytest.raises(InputError, match="shuffles=0; use 1 or more"):
        residual_null(noise(GRID, 2), shuffles=0)

"""Null models of position tables: class means, sampled tables, mirror symmetry."""

import pytest
import torch

from tests.inspection.tables import GRID, noise, plane
from vitpos.inspection._mirror_symmetry import MirrorSymmetry
from vitpos.inspection.null_models import DistanceNull
from vitpos.inspection.table_stats import center, flatten_table, grid_coordinates
from vitpos.inspection.table_structure import NULL_MODELS, contrasts


def test_sampled_tables_have_the_expected_inner_products():
    grid = (4, 6)
    x = center(flatten_table(plane(grid, 24)))
    null = DistanceNull(grid)
    assert torch.allclose(null.expected_products(x @ x.mT), x @ x.mT), "a plane depends on distance alone"
    sampled = torch.cat(list(null.sample_tables(x, samples=2000, seed=0)))
    assert sampled.shape == (2000, 24, 24) and sampled.sum(1).abs().max() < 1e-4
    assert torch.allclose((sampled @ sampled.mT).mean(0).double() / 24, x @ x.mT, atol=0.05 * (x @ x.mT).max())


def test_residual_contrasts_ignore_functions_of_distance():
    coords = grid_coordinates(GRID)
    distance = torch.cdist(coords, coords)
    null = DistanceNull(GRID)
    in_row = (coords[:, :1] == coords[:, 0]) & (distance > 0)
    for name in NULL_MODELS:
        weight = contrasts(GRID)[name]
        residual = null.residual_weights(weight)
        for decay in (1 - distance / 20, torch.exp(-distance.square() / 18), 1 / (1 + distance)):
            assert abs((residual * decay).sum()) < 0.02 * (1 + abs((weight * decay).sum())), name
    assert (null.residual_weights(contrasts(GRID)["same_row"]) * in_row).sum() > 0.7, (
        "rows are not explained by distance"
    )


@pytest.mark.parametrize("grid", [(1, 1), (1, 4), (3, 1), (4, 6), (5, 4), (7, 9)])
def test_mirror_symmetry_block_diagonalizes_invariant_matrices(grid):
    symmetry, count = MirrorSymmetry(grid), grid[0] * grid[1]
    x = noise(grid, 3).flatten(0, 1)
    assert torch.allclose(symmetry.join(symmetry.split(x)), x)
    coords = grid_coordinates(grid)
    matrix = 1 / (1 + torch.cdist(coords, coords))
    blocks = symmetry.blocks(matrix)
    assert sum(map(len, blocks)) == count
    values = torch.cat([torch.linalg.eigvalsh(block) for block in blocks]).sort().values
    assert torch.allclose(values, torch.linalg.eigvalsh(matrix))
    pairs = zip(symmetry.split(x), blocks, strict=True)
    assert torch.allclose(sum((part @ part.mT * block).sum() for part, block in pairs), (x @ x.mT * matrix).sum())


def test_contrasts_with_a_null_model_are_mirror_symmetric():
    for grid in ((5, 7), (6, 4)):
        index = torch.arange(grid[0] * grid[1]).unflatten(0, grid)
        for name in NULL_MODELS:
            for order in (index.flip(0).flatten(), index.flip(1).flatten()):
                weight = contrasts(grid)[name]
                assert torch.equal(weight[order][:, order], weight), name

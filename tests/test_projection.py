"""Projections: a grid is seen where there is one, in any position, and nothing is seen in noise."""

import math
import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.references import peer
from tests.tables import GRID, noise, plane, variance
from tests.test_analysis import HOPELESS, grids
from vitpos.errors import UserError
from vitpos.inspection.table_projection import grid_residual, pca, principal, trustworthiness, umap
from vitpos.inspection.table_stats import coordinates


def turned(points, seed=0):
    """The same points turned or mirrored, scaled and moved."""
    draw = torch.Generator().manual_seed(seed)
    turn = torch.linalg.qr(torch.randn(2, 2, dtype=torch.float64, generator=draw))[0]
    return 7 * points @ turn + torch.tensor([3.0, -40.0], dtype=torch.float64)


@pytest.mark.parametrize("grid", [(3, 8), (8, 3), (1, 9), (9, 1), (5, 5)])
def test_the_grid_itself_has_no_residual_however_it_lies(grid):
    true = coordinates(grid).unflatten(0, grid)
    for seed in range(4):
        assert grid_residual(turned(true, seed)) == pytest.approx(0, abs=1e-12)


def test_a_stretched_grid_is_another_grid():
    true = coordinates(GRID)
    stretched = (true * torch.tensor([2.0, 1.0])).unflatten(0, GRID)
    lengths = [variance(9), variance(13)]  # of true rows and columns; stretched rows have 4 times as much
    overlap = (2 * lengths[0] + lengths[1]) ** 2 / (sum(lengths) * (4 * lengths[0] + lengths[1]))
    assert grid_residual(stretched) == pytest.approx(1 - overlap)


def test_the_residual_is_procrustes():
    procrustes = peer("scipy.spatial").procrustes
    for seed in range(5):
        points = coordinates(GRID) + 3 * noise(GRID, 2, seed).flatten(0, 1)
        expected = procrustes(coordinates(GRID).numpy(), points.numpy())[2]
        assert grid_residual(points.unflatten(0, GRID)) == pytest.approx(expected)


def test_principal_components_show_the_plane_that_is_there():
    for sigma in (0.0, 0.5):
        table = plane(sigma=sigma)
        shown = pca(table)
        noise_share = 2 * sigma**2 / (variance(9) + variance(13) + 2 * sigma**2)  # along the two directions shown
        assert shown.residual == pytest.approx(noise_share, abs=0.5 * noise_share + 1e-9)
        assert shown.trustworthiness > 0.95 and not shown.reason
    assert pca(noise()).residual > 0.9 and pca(noise()).trustworthiness < 0.8


def test_principal_components_are_scikit_learns():
    table = plane((4, 7), 12, 1.0)
    reference = peer("sklearn.decomposition").PCA(3).fit_transform(table.flatten(0, 1).numpy())
    found = principal(table, dimensions=3)
    assert found.shape == (4, 7, 3)
    assert torch.allclose((found.flatten(0, 1) * table.abs().max()).abs(), torch.from_numpy(reference).abs())
    largest = found.flatten(0, 1).gather(0, found.flatten(0, 1).abs().argmax(0, keepdim=True))
    assert (largest > 0).all(), "of the two signs, always the same"


@pytest.mark.parametrize("table", [plane((4, 7), 12, 1.0), noise((3, 5), 40), noise((3, 4), 2), torch.ones(2, 3, 4)])
def test_two_components_are_the_first_of_three(table):
    assert torch.equal(principal(table, dimensions=3)[..., :2], principal(table))
    shown = pca(table)
    if shown.points is not None:
        assert torch.equal(shown.points, principal(table)) and torch.equal(shown.space, principal(table, dimensions=3))


def test_components_that_are_not_there_are_zero():
    assert torch.equal(principal(noise((3, 4), 1), dimensions=3)[..., 1:], torch.zeros(3, 4, 2, dtype=torch.float64))
    assert not principal(torch.ones(2, 3, 4)).any()


def test_trustworthiness_is_one_where_no_neighbour_is_lost():
    peer("sklearn.manifold")
    table = plane()
    assert trustworthiness(noise(), noise()) == 1 > trustworthiness(noise(), principal(noise()))
    assert trustworthiness(table, principal(table)) > 0.99, "but for places equally far apart"
    assert trustworthiness(noise((1, 2), 3), noise((1, 2), 2)) is None
    large, other = noise((32, 66), 3), noise((32, 66), 2, seed=1)
    assert trustworthiness(large, other) == trustworthiness(large[::2, ::2], other[::2, ::2]), "of pairs there are many"


def test_umap_lays_a_plane_out_as_a_grid_and_a_seed_repeats_it():
    threads = torch.get_num_threads()
    peer("umap")
    table = plane(sigma=0.1)
    before = list(warnings.filters)
    shown = umap(table, seed=3)
    assert warnings.filters == before, "it is quietened, not everybody"
    assert shown.points.shape == (*GRID, 2) and shown.residual < 0.1 and shown.trustworthiness > 0.97
    assert torch.equal(umap(table, seed=3).points, shown.points)
    assert not torch.equal(umap(table, seed=4).points, shown.points)
    lost = umap(noise())
    assert lost.residual > 0.8 and lost.trustworthiness < 0.8
    assert torch.get_num_threads() == threads, "nothing else in the process is touched"


@pytest.mark.parametrize("name", HOPELESS)
def test_hopeless_tables_have_projections_or_reasons(name):
    peer("umap")
    for found in (pca(HOPELESS[name]), umap(HOPELESS[name])):
        if name in ("zeros", "all the same", "one place") or found.points is None:
            assert found.points is found.residual is found.trustworthiness is found.space is None and found.reason
        else:
            assert found.points.isfinite().all() and 0 <= found.residual <= 1
            assert bool(found.reason) == (found.trustworthiness is None)


def test_a_layout_of_no_neighbours_is_refused():
    with pytest.raises(UserError, match="neighbours=1; take 2 or more"):
        umap(noise(), neighbours=1)


@given(grid=grids, width=st.integers(1, 6), seed=st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_projections_take_any_grid(grid, width, seed):
    table = noise(grid, width, seed)
    assert principal(table, dimensions=3).shape == (*grid, 3)
    residual = grid_residual(principal(table))
    assert residual is None if grid == (1, 1) else math.isfinite(residual) and 0 <= residual <= 1

"""Projections of position tables: planes are recognized in any orientation, noise is not; SciPy and scikit-learn agree."""

import math
import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.inspection.tables import DEGENERATE, GRID, noise, plane, variance
from tests.references import peer
from vitpos.errors import InputError
from vitpos.inspection.table_projection import grid_residual, pca, principal_components, trustworthiness, umap
from vitpos.inspection.table_stats import grid_coordinates

grids = st.tuples(st.integers(1, 6), st.integers(1, 6))


def rotated(points, seed=0):
    """The same points rotated or reflected, scaled and shifted."""
    generator = torch.Generator().manual_seed(seed)
    rotation = torch.linalg.qr(torch.randn(2, 2, dtype=torch.float64, generator=generator))[0]
    return 7 * points @ rotation + torch.tensor([3.0, -40.0], dtype=torch.float64)


@pytest.mark.parametrize("grid", [(3, 8), (8, 3), (1, 9), (9, 1), (5, 5)])
def test_the_residual_of_a_rotated_grid_is_zero(grid):
    true = grid_coordinates(grid).unflatten(0, grid)
    for seed in range(4):
        assert grid_residual(rotated(true, seed)) == pytest.approx(0, abs=1e-12)


def test_stretching_one_axis_gives_the_expected_residual():
    true = grid_coordinates(GRID)
    stretched = (true * torch.tensor([2.0, 1.0])).unflatten(0, GRID)
    lengths = [variance(9), variance(13)]  # rows and columns; stretched rows have 4 times the variance
    overlap = (2 * lengths[0] + lengths[1]) ** 2 / (sum(lengths) * (4 * lengths[0] + lengths[1]))
    assert grid_residual(stretched) == pytest.approx(1 - overlap)


def test_the_residual_equals_scipys_procrustes():
    procrustes = peer("scipy.spatial").procrustes
    for seed in range(5):
        points = grid_coordinates(GRID) + 3 * noise(GRID, 2, seed).flatten(0, 1)
        expected = procrustes(grid_coordinates(GRID).numpy(), points.numpy())[2]
        assert grid_residual(points.unflatten(0, GRID)) == pytest.approx(expected)


def test_pca_recovers_a_noisy_plane_but_not_noise():
    for sigma in (0.0, 0.5):
        table = plane(sigma=sigma)
        projection = pca(table)
        noise_fraction = (
            2 * sigma**2 / (variance(9) + variance(13) + 2 * sigma**2)
        )  # along the two directions projection
        assert projection.residual == pytest.approx(noise_fraction, abs=0.5 * noise_fraction + 1e-9)
        assert projection.trustworthiness > 0.95 and not projection.reason
    assert pca(noise()).residual > 0.9 and pca(noise()).trustworthiness < 0.8


def test_principal_components_equal_scikit_learns():
    table = plane((4, 7), 12, 1.0)
    reference = peer("sklearn.decomposition").PCA(3).fit_transform(table.flatten(0, 1).numpy())
    found = principal_components(table, dimensions=3)
    assert found.shape == (4, 7, 3)
    assert torch.allclose((found.flatten(0, 1) * table.abs().max()).abs(), torch.from_numpy(reference).abs())
    largest = found.flatten(0, 1).gather(0, found.flatten(0, 1).abs().argmax(0, keepdim=True))
    assert (largest > 0).all(), "the sign is fixed"


@pytest.mark.parametrize("table", [plane((4, 7), 12, 1.0), noise((3, 5), 40), noise((3, 4), 2), torch.ones(2, 3, 4)])
def test_two_components_are_the_first_of_three(table):
    assert torch.equal(principal_components(table, dimensions=3)[..., :2], principal_components(table))
    projection = pca(table)
    if projection.points is not None:
        assert torch.equal(projection.points, principal_components(table)) and torch.equal(
            projection.points_3d, principal_components(table, dimensions=3)
        )


def test_missing_components_are_zero():
    assert torch.equal(
        principal_components(noise((3, 4), 1), dimensions=3)[..., 1:], torch.zeros(3, 4, 2, dtype=torch.float64)
    )
    assert not principal_components(torch.ones(2, 3, 4)).any()


@pytest.mark.parametrize(("grid", "neighbors"), [(GRID, 5), (GRID, 20), ((1, 9), 5), ((3, 2), 5), ((1, 3), 1)])
def test_trustworthiness_equals_scikit_learns(grid, neighbors):
    reference = peer("sklearn.manifold").trustworthiness
    for seed in range(4):
        table, points = noise(grid, 12, seed), noise(grid, 2, seed + 50)
        count = min(neighbors, (grid[0] * grid[1] - 1) // 2)
        expected = reference(*(x.flatten(0, 1).numpy() for x in (table, points)), n_neighbors=count)
        assert trustworthiness(table, points, neighbors=neighbors) == pytest.approx(expected, abs=1e-12)


def test_trustworthiness_is_one_for_the_table_itself():
    table = plane()
    assert trustworthiness(noise(), noise()) == 1 > trustworthiness(noise(), principal_components(noise()))
    assert trustworthiness(table, principal_components(table)) > 0.99, "up to ties"
    assert trustworthiness(noise((1, 2), 3), noise((1, 2), 2)) is None
    large, other = noise((32, 66), 3), noise((32, 66), 2, seed=1)
    assert trustworthiness(large, other) == trustworthiness(large[::2, ::2], other[::2, ::2]), (
        "large tables are subsampled"
    )


@pytest.mark.slow  # umap compiles its code for half a minute
def test_umap_recovers_a_plane_and_repeats_for_a_seed():
    threads = torch.get_num_threads()
    peer("umap")
    table = plane(sigma=0.1)
    before = list(warnings.filters)
    projection = umap(table, seed=3)
    assert warnings.filters == before, "warning filters are restored"
    assert projection.points.shape == (*GRID, 2) and projection.residual < 0.1 and projection.trustworthiness > 0.97
    assert torch.equal(umap(table, seed=3).points, projection.points)
    assert not torch.equal(umap(table, seed=4).points, projection.points)
    unstructured = umap(noise())
    assert unstructured.residual > 0.8 and unstructured.trustworthiness < 0.8
    assert torch.get_num_threads() == threads, "the thread count is restored"


@pytest.mark.parametrize("project", [pca, pytest.param(umap, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", DEGENERATE)
def test_degenerate_tables_have_projections_or_reasons(name, project):
    if project is umap:
        peer("umap")
    found = project(DEGENERATE[name])
    if name in ("zeros", "constant", "one position") or found.points is None:
        assert found.points is found.residual is found.trustworthiness is found.points_3d is None and found.reason
    else:
        assert found.points.isfinite().all() and 0 <= found.residual <= 1
        assert bool(found.reason) == (found.trustworthiness is None)


def test_umap_with_one_neighbor_is_rejected():
    with pytest.raises(InputError, match="neighbors=1"):
        umap(noise(), neighbors=1)


@given(grid=grids, width=st.integers(1, 6), seed=st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_projections_accept_any_grid(grid, width, seed):
    table = noise(grid, width, seed)
    assert principal_components(table, dimensions=3).shape == (*grid, 3)
    residual = grid_residual(principal_components(table))
    assert residual is None if grid == (1, 1) else math.isfinite(residual) and 0 <= residual <= 1

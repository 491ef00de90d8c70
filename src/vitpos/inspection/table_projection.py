"""Projections of a position table to two and three dimensions (PCA, UMAP) and their agreement with the grid."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from vitpos.errors import InputError
from vitpos.inspection.table_stats import CONSTANT, EPS, INSTALL, center, flatten_table, grid_coordinates, subsample

MIN_UMAP = 5  # positions that UMAP needs


@dataclass(frozen=True)
class Projection:
    """A projection of a position table to two dimensions, with measures of its agreement with the grid.

    points: (R, C, 2). residual: distance of the points from a regular grid, 0 to 1 (:func:`grid_residual`).
    trustworthiness: whether neighbors in the projection are neighbors in the table (:func:`trustworthiness`); None
    for fewer than 3 positions. points_3d: (R, C, 3), for PCA only; ``points`` are its first two components. Undefined
    values are None, and ``reason`` says why.
    """

    points: Tensor | None
    residual: float | None
    trustworthiness: float | None
    reason: str = ""
    points_3d: Tensor | None = None


def pca(table: Tensor) -> Projection:
    """Returns the projection of a table (R, C, D) to two principal components, and to three as ``points_3d``."""
    components = principal_components(table, dimensions=3)
    projection = _projection(table, components[..., :2])
    return projection if projection.points is None else replace(projection, points_3d=components)


def umap(table: Tensor, *, neighbors: int = 15, seed: int = 0) -> Projection:
    """Returns the projection of a table (R, C, D) to two dimensions by UMAP (McInnes et al., 2018; umap-learn).

    ``neighbors`` is UMAP's ``n_neighbors``, at most the number of positions − 1. Layouts are deterministic for a seed and
    vary between seeds: compare numbers over several seeds rather than trusting one figure.
    """
    if neighbors < 2:
        raise InputError(f"UMAP got neighbors={neighbors}; use 2 or more")
    x = flatten_table(table)
    if len(x) < MIN_UMAP:
        return Projection(None, None, None, f"{len(x)} positions are too few for UMAP")
    return _projection(table, _umap_layout(x, neighbors, seed).unflatten(0, table.shape[:2]))


def _projection(table: Tensor, points: Tensor) -> Projection:
    if not center(flatten_table(table)).any():
        return Projection(None, None, None, CONSTANT)
    trust = trustworthiness(table, points)
    count = points.shape[0] * points.shape[1]
    reason = "" if trust is not None else f"{count} positions are too few for trustworthiness"
    return Projection(points, grid_residual(points), trust, reason)


def principal_components(table: Tensor, *, dimensions: int = 2) -> Tensor:
    """Returns the scores (R, C, dimensions) of the first principal components of a table (R, C, D).

    Scores are 0 for components that the table does not have. The table is first divided by its largest absolute
    entry. The sign of each component is such that its score with the largest absolute value is positive.
    """
    x = center(flatten_table(table))
    u, values, _ = torch.linalg.svd(x, full_matrices=False)
    values = torch.where(values > max(x.shape) * EPS * values[0], values, 0)
    scores = x.new_zeros(len(x), dimensions)
    scores[:, : len(values)] = (u * values)[:, :dimensions]
    largest = scores.gather(0, scores.abs().argmax(0, keepdim=True))
    return torch.where(largest < 0, -scores, scores).unflatten(0, table.shape[:2])


def _umap_layout(x: Tensor, neighbors: int, seed: int) -> Tensor:
    """Returns the UMAP layout (N, 2) of vectors x (N, D), by umap-learn on one core, with its warnings suppressed."""
    with warnings.catch_warnings(action="ignore"):
        try:
            from umap import UMAP
        except ImportError as error:
            raise InputError(f"a UMAP projection needs umap-learn ({error}); {INSTALL}") from error
        init = "random" if len(x) <= 2 * MIN_UMAP else "spectral"  # the spectral start needs more positions
        threads = torch.get_num_threads()
        try:
            layout = UMAP(n_neighbors=min(neighbors, len(x) - 1), init=init, random_state=seed, n_jobs=1)
            return torch.from_numpy(layout.fit_transform(x.numpy())).double()
        finally:
            torch.set_num_threads(threads)  # numba changes it for the whole process


def grid_residual(points: Tensor) -> float | None:
    """Returns the Procrustes distance between points (R, C, K) in K dimensions and their grid: 0 (perfect grid) to 1.

    Points and true coordinates (row and column, in patches) are centered and scaled to a sum of squares of 1; the
    points are rotated, reflected and scaled to fit best; the residual is the sum of squared distances that remains.
    Anisotropic stretching is not undone. None for a single position, or if all points are equal.
    """
    x = center(flatten_table(points))
    if not x.any() or len(x) == 1:
        return None
    return procrustes_distances(x, (points.shape[0], points.shape[1])).item()


def procrustes_distances(points: Tensor, grid: tuple[int, int]) -> Tensor:
    """Returns the Procrustes distances (…) of centered points (…, N, K) from the N positions of a grid, row-major.

    As :func:`grid_residual`, without its checks.
    """
    true = grid_coordinates(grid)
    true = true - true.mean(0)
    overlap = torch.linalg.svdvals(points.mT @ true).sum(-1) / (points.norm(dim=(-2, -1)) * true.norm())
    return (1 - overlap.square()).clamp_min(0)


def trustworthiness(table: Tensor, points: Tensor, *, neighbors: int = 5) -> float | None:
    """Returns to what degree neighbors in a projection are neighbors in the table (R, C, D), from 0 to 1 (all of them).

    It is the trustworthiness of Venna and Kaski (2001): 1 − 2 / (N k (2N − 3k − 1)) · Σ max(0, rank − k), over each
    position and its k = ``neighbors`` nearest in the projection, where rank is the rank of the latter by distance in
    the table, from 1. k is fewer than half of the N positions; None for fewer than 3 positions. Tables of more than
    2,000 positions are subsampled.

    Args:
        points: (R, C, K), the position vectors projected to K dimensions.
    """
    x, projected = (flatten_table(subsample(one)[0]) for one in (table, points))
    n, k = len(x), min(neighbors, (len(x) - 1) // 2)
    if not k:
        return None
    ranks = _distances(x).fill_diagonal_(-torch.inf).argsort(1).argsort(1)  # 0 for the position itself
    nearest = _distances(projected).fill_diagonal_(torch.inf).topk(k, largest=False).indices
    excess = (ranks.gather(1, nearest) - k).clamp_min(0).sum().item()
    return 1 - 2 / (n * k * (2 * n - 3 * k - 1)) * excess


def _distances(x: Tensor) -> Tensor:
    return torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist")

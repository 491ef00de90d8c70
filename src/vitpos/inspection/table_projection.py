"""Position vectors in two and three dimensions, and how much of the grid is to be seen there."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from vitpos.errors import UserError
from vitpos.inspection.table_stats import INSTALL, ROUNDING, centred, coordinates, thinned, vectors

FEWEST = 5  # places that UMAP lays out


@dataclass(frozen=True)
class Projection:
    """Places in the plane, and how much of the grid and of the table is to be seen there.

    points: (R, C, 2). residual: :func:`grid_residual`, 0 to 1. trustworthiness: :func:`trustworthiness`, None where
    scikit-learn is not installed or places are few. What there is not is None, and ``reason`` says why. space: (R, C, 3),
    of principal components with the third one, of which ``points`` are the first two.
    """

    points: Tensor | None
    residual: float | None
    trustworthiness: float | None
    reason: str = ""
    space: Tensor | None = None


def pca(table: Tensor) -> Projection:
    """The first two principal components of a table (R, C, D), and the third beside them."""
    space = principal(table, dimensions=3)
    shown = _seen(table, space[..., :2])
    return shown if shown.points is None else replace(shown, space=space)


def umap(table: Tensor, *, neighbours: int = 15, seed: int = 0) -> Projection:
    """UMAP's layout of a table (R, C, D) in the plane (McInnes et al., 2018), by umap-learn; a seed repeats it.

    Other seeds give other pictures: compare the numbers over several, and believe no single picture.
    """
    if neighbours < 2:
        raise UserError(f"UMAP got neighbours={neighbours}; take 2 or more")
    x = vectors(table)
    if len(x) < FEWEST:
        return Projection(None, None, None, f"{len(x)} places are too few for UMAP")
    return _seen(table, _layout(x, neighbours, seed).unflatten(0, table.shape[:2]))


def _seen(table: Tensor, points: Tensor) -> Projection:
    if not centred(vectors(table)).any():
        return Projection(None, None, None, "all position vectors are the same")
    try:
        trust = trustworthiness(table, points)
    except UserError as missing:
        return Projection(points, grid_residual(points), None, str(missing))
    few = "" if trust is not None else f"{points.shape[0] * points.shape[1]} places are too few for a trustworthiness"
    return Projection(points, grid_residual(points), trust, few)


def principal(table: Tensor, *, dimensions: int = 2) -> Tensor:
    """(R, C, D) → (R, C, dimensions): coordinates along the first principal components, 0 where there are fewer.

    They are in units of the table's largest magnitude, each with the sign that makes its largest coordinate positive.
    """
    x = centred(vectors(table))
    directions, values, _ = torch.linalg.svd(x, full_matrices=False)
    values = torch.where(values > max(x.shape) * ROUNDING * values[0], values, 0)
    found = x.new_zeros(len(x), dimensions)
    found[:, : len(values)] = (directions * values)[:, :dimensions]
    largest = found.gather(0, found.abs().argmax(0, keepdim=True))
    return torch.where(largest < 0, -found, found).unflatten(0, table.shape[:2])


def _layout(x: Tensor, neighbours: int, seed: int) -> Tensor:
    """(N, D) → (N, 2): umap-learn's, on one core, as it does with a seed anyway; what it would say aloud is left unsaid."""
    with warnings.catch_warnings(action="ignore"):
        try:
            from umap import UMAP
        except ImportError as error:
            raise UserError(f"a UMAP projection needs umap-learn ({error}); {INSTALL}") from error
        start = "random" if len(x) <= 2 * FEWEST else "spectral"  # eigenvectors need more places than that
        threads = torch.get_num_threads()
        try:
            layout = UMAP(n_neighbors=min(neighbours, len(x) - 1), init=start, random_state=seed, n_jobs=1)
            return torch.from_numpy(layout.fit_transform(x.numpy())).double()
        finally:
            torch.set_num_threads(threads)  # which the compiler of UMAP sets for the whole process


def grid_residual(points: Tensor) -> float | None:
    """How far points (R, C, K) are from their grid: 0 for the grid itself, up to 1 for nothing of it (Procrustes).

    Points and true places (row and column, in patches) are both centred and scaled to a sum of squares of 1; the points
    are turned, mirrored and scaled as fits best; what is left is the sum of squared distances. Stretching one axis is not
    undone. None for one place, or where all points are the same.
    """
    grid = (points.shape[0], points.shape[1])
    found, true = centred(vectors(points)), coordinates(grid)
    true = true - true.mean(0)
    if not found.any() or not true.any():
        return None
    overlap = torch.linalg.svdvals(found.mT @ true).sum() / (found.norm() * true.norm())
    return max(0.0, 1 - overlap.square().item())


def trustworthiness(table: Tensor, points: Tensor, *, neighbours: int = 5) -> float | None:
    """Whether neighbours in a projection (R, C, K) are neighbours in the table (Venna and Kaski, 2001): 1 if all are.

    By scikit-learn, of the nearest ``neighbours``, or of as many as less than half of the places are. None below 3 places.
    Of more than 2,000 places every k-th row and column is taken, since all pairs are compared.
    """
    try:
        from sklearn.manifold import trustworthiness as measure
    except ImportError as error:
        raise UserError(f"trustworthiness needs scikit-learn ({error}); {INSTALL}") from error
    x, laid = (vectors(thinned(one)[0]) for one in (table, points))
    count = min(neighbours, (len(x) - 1) // 2)
    return float(measure(x.numpy(), laid.numpy(), n_neighbors=count)) if count else None

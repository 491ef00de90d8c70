"""Projection of vectors onto their first two principal directions (PCA), with exact gradients."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def project_on_principal_directions(vectors: Tensor, known: Tensor) -> Tensor:
    """Returns the projections (B|1, N, 2) of vectors (B|1, N, D) onto their first two principal directions (PCA).

    The directions are those of the vectors for which ``known`` (B|1, N) is True, after their mean is subtracted. The
    vectors that are projected are not centered, as in the published code of masked jigsaw puzzles (MJP). The sign of a
    direction is arbitrary, and gradients flow through the directions too.

    The directions are computed exactly, from the smaller of the two Gram matrices. For the gradient, a direction v of
    the covariance C with eigenvalue λ is written as v + (λ − C)⁺(C v − λ v), where only the last C depends on the
    vectors; to first order this has the value and the gradient of the direction.
    """
    weight = known[..., None] / known.sum(-1).clamp_min(1)[:, None, None]
    centered = (vectors - (vectors * weight).sum(1, keepdim=True)) * known[..., None]  # (B|1, N, D), zero where hidden
    fixed = centered.detach()
    if fixed.shape[1] < fixed.shape[2]:
        values, left = torch.linalg.eigh(fixed @ fixed.mT)
        directions = fixed.mT @ left  # (B|1, D, count), smallest first, as long as their eigenvalues' roots
    else:
        values, directions = torch.linalg.eigh(fixed.mT @ fixed)
    values = values[:, None]  # (B|1, 1, count)
    real = values > 1e-6 * values[..., -1:]  # the rest is rounding error
    directions = F.normalize(directions, dim=1) * real
    main, size = directions[..., -2:], values[..., -2:]
    change = centered.mT @ (centered @ main) - size * main  # (B|1, D, 2), zero, but with a gradient
    along = directions.mT @ change  # in all directions, (B|1, count, 2)
    gaps = size - values.mT
    separated = gaps.abs() > 1e-6 * size
    inside = directions @ torch.where(separated, along / torch.where(separated, gaps, 1), 0)
    outside = (change - directions @ along) / size.clamp_min(1e-12)
    return vectors @ (main + (inside + outside) * real[..., -2:]).flip(-1)

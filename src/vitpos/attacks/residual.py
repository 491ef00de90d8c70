"""Partial reconstruction from an underdetermined system: exact outside a subspace of pixels, smooth inside it.

The solutions of M a = y for the token gradients a are a = M⁺y + Z b, where the columns of Z span the null space of M and b
is unknown. The gradient of the patch projection is G = (M⁺y)ᵀ X + bᵀ Zᵀ X for the pixels X. Projecting out the row space of
M⁺y leaves a part of bᵀ Zᵀ X, whose row space V is that of ZᵀX, the differences between patches that the equations do not
distinguish. Outside V, ZᵀX is zero, so that the least-norm solution X is the true one there. Inside V nothing is known, and
the smoothest image is used.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from vitpos.attacks.equations import Equations
from vitpos.patches import patchify, unpatchify
from vitpos.positions import Positions

PULL = 0.1  # weight of the least-norm solution, relative to smoothness; PULL and LARGEST are tuned on 8 training images
LARGEST = 2.5  # maximum normalized pixel value; larger ones come from divisions by singular values that are too small
STEPS = 200


def unseen(system: Equations, product: Tensor, rounding: float, noise: float = 0.0) -> Tensor:
    """Returns an orthonormal basis (k, P) of the pixel subspace V that the equations do not determine.

    Args:
        system: The equations for the token gradients.
        product: G (D, P), the gradient of the patch projection.
        rounding: Machine epsilon of the client; smaller singular values are taken as zero.
        noise: Std of the noise in G; singular values that it may cause are taken as zero.
    """
    known = system.solve()
    _, values, right = torch.linalg.svd(known, full_matrices=False)
    right = right[values > values[0] * max(known.shape) * torch.finfo(values.dtype).eps]
    rest = product - right.mT @ (right @ product)
    _, values, basis = torch.linalg.svd(rest, full_matrices=False)
    largest_noise = noise * sum(side**0.5 for side in product.shape)
    real = int((values > max(product.shape) * rounding * torch.linalg.matrix_norm(product, 2) + largest_noise).sum())
    return basis[: min(real, system.weights.shape[1] - system.rank)]


def smooth_inside(pixels: Tensor, basis: Tensor, pos: Positions, patch: tuple[int, int]) -> Tensor:
    """Returns pixels (N, P) that are unchanged outside the span of ``basis`` (k, P) and as smooth as possible inside it.

    Minimizes the sum of squared differences between neighboring pixels. Differences across the borders of hidden patches
    are left out, because clients that hide patches also shuffle them, so that they do not continue their neighbors.
    """
    outside, inside = pixels - pixels @ basis.mT @ basis, pixels.clamp(-LARGEST, LARGEST) @ basis.mT
    index = torch.arange(len(pixels), device=pixels.device)
    region = torch.where(pos.known[0], -1, index)[None, :, None].expand(1, -1, patch[0] * patch[1])
    regions = unpatchify(region, pos.grid, patch)  # (1, 1, height, width); differences count within a region
    down, right = (regions.diff(dim=axis) == 0 for axis in (2, 3))

    def laplacian(x: Tensor) -> Tensor:
        image = unpatchify(x[None], pos.grid, patch)
        steps = image.diff(dim=2) * down, image.diff(dim=3) * right
        sums = -F.pad(steps[0], (0, 0, 1, 1)).diff(dim=2) - F.pad(steps[1], (1, 1)).diff(dim=3)
        return patchify(sums, patch)[0] @ basis.mT

    target = PULL * inside - laplacian(outside)
    return outside + _conjugate(lambda c: laplacian(c @ basis) + PULL * c, target, inside) @ basis


def _conjugate(matrix: Callable[[Tensor], Tensor], goal: Tensor, x: Tensor) -> Tensor:
    """Solves ``matrix(x) = goal`` for a positive definite linear map by conjugate gradients, starting at ``x``."""
    residual = goal - matrix(x)
    direction, square = residual, residual.square().sum()
    for _ in range(STEPS):
        if square <= 1e-20 * goal.square().sum():
            break
        product = matrix(direction)
        step = square / (direction * product).sum()
        x, residual = x + step * direction, residual - step * product
        previous, square = square, residual.square().sum()
        direction = residual + square / previous * direction
    return x

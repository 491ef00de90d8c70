"""What a closed-form attack can find in the null space of its equations: the smoothest image.

The equations M a = y for the gradients a (N, D) at the patch tokens may be underdetermined. Their solutions are then
a = M⁺y + Z b, where M⁺ is the pseudo-inverse, the columns of Z span the null space of M, and b is unknown. The gradient of
the weight of the patch projection is G = (M⁺y)ᵀ X + bᵀ Zᵀ X for the pixels X (N, P). Projecting out the row space of M⁺y
leaves a part of bᵀ Zᵀ X, whose row space V is that of ZᵀX, the differences between patches that the equations do not
distinguish. Outside V, ZᵀX is zero, so that the least-norm solution X is the true one there. Inside V nothing is known, and
the smoothest image is taken.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from vitpos.patches import patchify, unpatchify
from vitpos.positions import Positions
from vitpos.privacy.linear_system import LinearSystem

LEAST_NORM_WEIGHT = 0.1  # relative to smoothness; this and MAX_VALUE are tuned on 8 training images
MAX_VALUE = 2.5  # of normalized pixels; larger ones come from divisions by singular values that are too small
MAX_CG_STEPS = 200  # of conjugate gradients


def null_space_basis(system: LinearSystem, weight_gradient: Tensor, rounding: float, noise_std: float = 0.0) -> Tensor:
    """Returns an orthonormal basis (k, P) of the directions in pixel space that the system does not determine.

    P is the number of pixel values in a patch. The directions are the row space of the part of ``weight_gradient`` that
    the solution of the system does not explain.

    Args:
        system: The linear system for the gradients at the patch tokens.
        weight_gradient: (D, P), the gradient of the weight of the patch projection.
        rounding: Machine epsilon of the client's floating-point type; singular values that rounding may cause are taken
            as zero.
        noise_std: Std of the noise in ``weight_gradient``; singular values that it may cause are taken as zero.
    """
    known = system.solve()
    _, values, right = torch.linalg.svd(known, full_matrices=False)
    right = right[values > values[0] * max(known.shape) * torch.finfo(values.dtype).eps]
    residual = weight_gradient - right.mT @ (right @ weight_gradient)
    _, values, basis = torch.linalg.svd(residual, full_matrices=False)
    tolerance = max(weight_gradient.shape) * rounding * torch.linalg.matrix_norm(weight_gradient, 2)
    tolerance += noise_std * sum(side**0.5 for side in weight_gradient.shape)  # largest singular value of the noise
    return basis[: min(int((values > tolerance).sum()), system.matrix.shape[1] - system.rank)]


def smooth_in_null_space(pixels: Tensor, basis: Tensor, pos: Positions, patch: tuple[int, int]) -> Tensor:
    """Returns pixels (N, P) that are unchanged outside the span of ``basis`` (k, P) and as smooth as possible inside it.

    The result minimizes the sum of squared differences between neighboring pixels. Differences across the borders of
    patches with a hidden position are left out, because clients that hide positions also shuffle the patches, so that they
    do not continue their neighbors.

    Args:
        pixels: (N, P), the P pixel values of each of N patches.
        basis: Orthonormal rows, the directions in pixel space that the attack does not determine.
        pos: Positions that the attacker assumes, some of which may be hidden.
        patch: Height and width of a patch.
    """
    outside, inside = pixels - pixels @ basis.mT @ basis, pixels.clamp(-MAX_VALUE, MAX_VALUE) @ basis.mT
    index = torch.arange(len(pixels), device=pixels.device)
    region = torch.where(pos.known[0], -1, index)[None, :, None].expand(1, -1, patch[0] * patch[1])
    regions = unpatchify(region, pos.grid, patch)  # (1, 1, height, width); differences count within a region
    down, right = (regions.diff(dim=axis) == 0 for axis in (2, 3))

    def laplacian(x: Tensor) -> Tensor:
        image = unpatchify(x[None], pos.grid, patch)
        steps = image.diff(dim=2) * down, image.diff(dim=3) * right
        sums = -F.pad(steps[0], (0, 0, 1, 1)).diff(dim=2) - F.pad(steps[1], (1, 1)).diff(dim=3)
        return patchify(sums, patch)[0] @ basis.mT

    def matrix(x: Tensor) -> Tensor:
        return laplacian(x @ basis) + LEAST_NORM_WEIGHT * x

    return outside + _conjugate_gradients(matrix, LEAST_NORM_WEIGHT * inside - laplacian(outside), inside) @ basis


def _conjugate_gradients(matrix: Callable[[Tensor], Tensor], rhs: Tensor, x: Tensor) -> Tensor:
    """Solves the linear system ``matrix(solution) = rhs`` by conjugate gradients; returns the solution.

    Args:
        matrix: A function of a tensor that is linear, symmetric and positive definite.
        rhs: The right-hand side.
        x: Initial guess, in the shape of ``rhs``.
    """
    residual = rhs - matrix(x)
    direction, square = residual, residual.square().sum()
    for _ in range(MAX_CG_STEPS):
        if square <= 1e-20 * rhs.square().sum():
            break
        product = matrix(direction)
        step = square / (direction * product).sum()
        x, residual = x + step * direction, residual - step * product
        previous, square = square, residual.square().sum()
        direction = residual + square / previous * direction
    return x

"""What can be said of pixels where equations are too few: exactly, outside of a space that the gradient itself shows.

With M a = y for the gradients a at the tokens, a = M⁺y + Z b, where the columns of Z are what M does not see and b is
unknown. The projection's gradient is G = (M⁺y)ᵀ X + bᵀ Zᵀ X. Outside of the span of what is known, only bᵀ Zᵀ X is left
of it: its row space V is that of ZᵀX, of the patches that are told as sums alone, less their common part. Outside of V,
ZᵀX is nothing, so that the smallest X that fits is the true one there. Inside of V nothing is known, and a smooth
picture is taken.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from vitpos.attacks.equations import Equations
from vitpos.patches import patchify, unpatchify
from vitpos.positions import Positions

PULL = 0.1  # towards the smallest answer, against one for smoothness; this and LARGEST chosen on eight training images
LARGEST = 2.5  # value of a pixel as models read it that is believed; beyond it an equation was too small to divide by
STEPS = 200


def unseen(told: Equations, product: Tensor, rounding: float, noise: float = 0.0) -> Tensor:
    """(k, P): a basis of the space of patches in which the projection's gradient (D, P) does not tell pixels apart.

    What rounding or ``noise`` of that deviation alone may leave of a gradient is taken for nothing.
    """
    known = told.solve()
    _, values, right = torch.linalg.svd(known, full_matrices=False)
    right = right[values > values[0] * max(known.shape) * torch.finfo(values.dtype).eps]
    rest = product - right.mT @ (right @ product)
    _, values, basis = torch.linalg.svd(rest, full_matrices=False)
    alone = noise * sum(side**0.5 for side in product.shape)
    real = int((values > max(product.shape) * rounding * torch.linalg.matrix_norm(product, 2) + alone).sum())
    return basis[: min(real, told.weights.shape[1] - told.rank)]


def smooth_inside(pixels: Tensor, basis: Tensor, pos: Positions, patch: tuple[int, int]) -> Tensor:
    """(N, P): pixels that stay as they are outside of a space, and inside of it give the smoothest picture.

    The sum of squared steps between neighbouring pixels is made least, borders of hidden patches left out: whoever hides
    patches moves them too, so that they do not fit where they are.
    """
    outside, inside = pixels - pixels @ basis.mT @ basis, pixels.clamp(-LARGEST, LARGEST) @ basis.mT
    places = torch.arange(len(pixels), device=pixels.device)
    region = torch.where(pos.known[0], -1, places)[None, :, None].expand(1, -1, patch[0] * patch[1])
    map = unpatchify(region, pos.grid, patch)  # (1, 1, height, width): steps count between pixels of one region
    down, right = (map.diff(dim=axis) == 0 for axis in (2, 3))

    def rough(x: Tensor) -> Tensor:
        picture = unpatchify(x[None], pos.grid, patch)
        steps = picture.diff(dim=2) * down, picture.diff(dim=3) * right
        sums = -F.pad(steps[0], (0, 0, 1, 1)).diff(dim=2) - F.pad(steps[1], (1, 1)).diff(dim=3)
        return patchify(sums, patch)[0] @ basis.mT

    return outside + _conjugate(lambda c: rough(c @ basis) + PULL * c, PULL * inside - rough(outside), inside) @ basis


def _conjugate(matrix: Callable[[Tensor], Tensor], goal: Tensor, x: Tensor) -> Tensor:
    """The x for which a positive matrix gives the goal, by conjugate gradients."""
    rest = goal - matrix(x)
    way, length = rest, rest.square().sum()
    for _ in range(STEPS):
        if length <= 1e-20 * goal.square().sum():
            break
        image = matrix(way)
        step = length / (way * image).sum()
        x, rest = x + step * way, rest - step * image
        before, length = length, rest.square().sum()
        way = rest + length / before * way
    return x

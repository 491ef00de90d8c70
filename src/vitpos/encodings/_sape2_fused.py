"""A fast form of SaPE2 for full grids: computes q·k and the bias together, in place and with little memory.

`SaPE2.bias` is the readable form; tests compare values and gradients of both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from vitpos.encodings._interp1d import interp1d
from vitpos.positions import Positions

if TYPE_CHECKING:
    from vitpos.encodings.sape2 import SaPE2


def fused_logits(encoding: SaPE2, q: Tensor, k: Tensor, pos: Positions, layer: int) -> Tensor:
    """Returns the attention logits (B, H, T, T) of q and k (B, H, T, d) with SaPE2's bias, in block number ``layer``.

    The last N tokens must be the patches of a full grid in row-major order.
    """
    shape, width = q.shape[:2], q.shape[-1]
    q, k = q.contiguous().flatten(0, 1), k.contiguous().flatten(0, 1)
    scores = torch.baddbmm(q.new_empty(()), q, k.mT, beta=0, alpha=width**-0.5)  # (B·H, T, T)
    count = pos.grid[0] * pos.grid[1]
    scores, *lines = Lines.apply(scores, pos.grid if encoding.per_axis else (1, count))
    content = k if encoding.mode == "key" else q
    tables = torch.cat([table[layer] for table in encoding.tables])
    values = (content @ tables.mT)[:, -count:].split([table.shape[1] for table in encoding.tables], -1)
    vectors = []
    for products, value in zip(lines, values, strict=False):
        _, counts = encoding.count(products, torch.ones_like(products), width)
        vectors.append(interp1d(value, counts.flatten(1, 2)))
    added: Tensor = AddDistances.apply(scores, encoding.factor, *vectors)
    return added.unflatten(0, shape)


class Lines(torch.autograd.Function):
    """Extracts from scores q·k (G, T, T) those between patches of one row, (G, R, C, C), and of one column, (G, R, C, R).

    G is batch times heads and R×C the grid. Returns the scores too, unchanged. As one autograd function, the backward
    pass needs no zero-filled (T, T) tensor.
    """

    @staticmethod
    def forward(ctx: Any, scores: Tensor, grid: tuple[int, int]) -> tuple[Tensor, Tensor, Tensor]:
        """Returns scores (G, T, T) and those within rows (G, R, C, C) and columns (G, R, C, R); G is batch times heads."""
        ctx.grid = grid
        ctx.mark_dirty(scores)
        rows, columns = within_lines(scores, grid)
        return scores, rows.contiguous(), columns.contiguous()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """Returns the gradient of the input scores (G, T, T): the sum of the gradients of the three outputs.

        The gradients of the scores within rows and within columns are added in place to that of all scores. No other
        function uses that tensor, because only `AddDistances` takes the scores as its input.
        """
        total = gradients[0].clone() if torch.is_grad_enabled() else gradients[0]
        for axis, gradient in enumerate(gradients[1:]):
            within_lines(total, ctx.grid)[axis].add_(gradient)
        return total, None


def within_lines(scores: Tensor, grid: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Returns two views of scores (G, T, T): (G, R, C, C) of patches in the same row, (G, R, C, R) in the same column.

    The patches are the last R·C tokens, R×C is the ``grid``, and G is batch times heads.
    """
    count = grid[0] * grid[1]
    pairs = scores[:, -count:, -count:].unflatten(2, grid).unflatten(1, grid)  # (G, R, C, R, C)
    return pairs.diagonal(dim1=1, dim2=3).movedim(-1, 1), pairs.diagonal(dim1=2, dim2=4).movedim(-1, 2)


class AddDistances(torch.autograd.Function):
    """Adds factor · ‖z_i − z_n‖₂ to scores (G, T, T) in place, for all patches i and n and each set of vectors z (G, N, L).

    G is batch times heads. The patches are the last N of T tokens. The backward pass recomputes the distances from the
    vectors instead of storing (N, N) tensors. A distance of zero has a gradient of zero. Double backward is supported,
    by differentiable operations.
    """

    @staticmethod
    def forward(ctx: Any, scores: Tensor, factor: float, *vectors: Tensor) -> Tensor:
        """Returns the scores (G, T, T) with the distances of all sets of vectors added."""
        ctx.factor, count = factor, vectors[0].shape[1]
        found = [_sides(z) for z in vectors]
        sides = [pair for pair, _ in found]
        ctx.mark_dirty(scores)
        ctx.save_for_backward(*vectors, *(side for pair in sides for side in pair))
        within = scores[:, -count:, -count:]
        for (left, right), unit in found:
            within.add_(_squares(left, right, 0.0).sqrt_().mul_(unit * factor))
        return scores

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Returns the gradients of the scores (unchanged), of the factor (None) and of each set of vectors z (G, N, L).

        For vector z_i it is factor · Σ_n (g_in + g_ni)(z_i − z_n)/‖z_i − z_n‖ with g the gradient of the scores.
        """
        sets, count = len(ctx.saved_tensors) // 3, ctx.saved_tensors[0].shape[1]
        within = gradients[0][:, -count:, -count:]
        if torch.is_grad_enabled():
            both = (within + within.mT) * ctx.factor
            return gradients[0], None, *(_towards(z, both) for z in ctx.saved_tensors[:sets])
        sides = list(zip(ctx.saved_tensors[sets::2], ctx.saved_tensors[sets + 1 :: 2], strict=True))
        both, found = within + within.mT, []
        for left, right in sides:
            weights = _squares(left, right, torch.inf).rsqrt_().mul_(both)
            sums = torch.bmm(right[..., 1:].mT, weights)  # Σ_n weight_in · (1, z_n); the weights are symmetric
            found.append((right[..., 2:] * sums[:, :1].mT - sums[:, 1:].mT).mul_(ctx.factor).to(gradients[0].dtype))
        return gradients[0], None, *found


def _sides(z: Tensor) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """Returns ((left, right), unit) with left·rightᵀ·unit² = ‖z_i − z_n‖², the squared distances of vectors z (G, N, L).

    left = (1, ‖z‖², −2z) and right = (‖z‖², 1, z) are (G, N, L + 2), with z centered and divided by unit (G, 1, 1), the
    largest norm.
    """
    z = centered(z)
    size = z.square().sum(-1, keepdim=True)
    unit = size.amax(1, keepdim=True).sqrt_().clamp_min_(1e-30)
    z, size = z.div_(unit), size.div_(unit.square())
    one = torch.ones_like(size)
    return (torch.cat([one, size, z.mul(-2)], -1), torch.cat([size, one, z], -1)), unit


def centered(z: Tensor) -> Tensor:
    """Returns z (…, N, L) minus its mean over the N tokens, in float32 or better, for accurate differences of squares."""
    z = z.to(torch.promote_types(z.dtype, torch.float32))
    return z - z.mean(-2, keepdim=True)


def _squares(left: Tensor, right: Tensor, zero: float) -> Tensor:
    """Returns the squared distances left·rightᵀ (G, N, N) of `_sides`; those below the rounding error become ``zero``."""
    squares = torch.bmm(left, right.mT)
    return F.threshold(squares, rounding(squares), zero, inplace=True)


def _towards(z: Tensor, both: Tensor) -> Tensor:
    """Returns the gradient (G, N, L) of vectors z in `AddDistances`, by differentiable operations.

    ``both`` (G, N, N) is factor · (g + gᵀ), with g the gradient of the scores of patches.
    """
    wide = centered(z)
    size = wide.square().sum(-1)
    squares = size[..., :, None] + size[..., None, :] - 2 * (wide @ wide.mT)
    near = squares <= rounding(squares) * size.amax(1)[:, None, None]
    near = near | torch.eye(z.shape[-2], dtype=torch.bool, device=z.device)
    weights = torch.where(near, 0, both / torch.where(near, 1, squares).sqrt())
    return (weights.sum(-1, keepdim=True) * wide - weights @ wide).to(z.dtype)


def rounding(squares: Tensor) -> float:
    """Returns the limit below which a squared distance of vectors of norm at most 1 is rounding error, in its dtype."""
    return 32 * torch.finfo(squares.dtype).eps

"""A fast form of SaPE2 for full grids: computes q·k and the bias together, in place and with little memory.

`SaPE2.bias` is the readable form; tests compare values and gradients of both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from vitpos.encodings._interp1d import interp1d
from vitpos.positions import Positions, without_autocast

if TYPE_CHECKING:
    from vitpos.encodings.sape2 import SaPE2


def fused_logits(encoding: SaPE2, q: Tensor, k: Tensor, pos: Positions, layer: int) -> Tensor:
    """Returns the attention logits (B, H, T, T) in block number ``layer``: q·k/√d plus the bias of the SaPE2 ``encoding``.

    q and k (B, H, T, d) are those of all T tokens. The patches, whose positions are ``pos``, must come last and be a
    full grid in row-major order.
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
    for axis, value in zip(encoding.axes, values, strict=True):
        _, counts = encoding.count(lines[axis], torch.ones_like(lines[axis]), width)
        vectors.append(interp1d(value, counts.flatten(1, 2)))
    added: Tensor = AddDistances.apply(scores, encoding.factor, *vectors)
    return added.unflatten(0, shape)


class Lines(torch.autograd.Function):
    """Extracts from scores q·k/√d (G, T, T) those of patches in the same row (G, R, C, C) and the same column (G, R, C, R).

    G is batch times heads, T the number of tokens and R×C the grid of patches, the last R·C tokens. Returns the scores
    too, unchanged. As one autograd function, the backward pass needs no zero-filled (T, T) tensor.
    """

    @staticmethod
    def forward(ctx: Any, scores: Tensor, grid: tuple[int, int]) -> tuple[Tensor, Tensor, Tensor]:
        """Returns the given scores (G, T, T), those within rows (G, R, C, C) and those within columns (G, R, C, R).

        G is batch times heads, T the number of tokens and R×C the ``grid`` of patches, the last R·C tokens. The last
        axis is the column (or row) of the key.
        """
        ctx.grid = grid
        ctx.mark_dirty(scores)
        rows, columns = within_lines(scores, grid)
        return scores, rows.contiguous(), columns.contiguous()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """Returns the gradient of the loss with respect to the input scores (G, T, T), and None for the input ``grid``.

        ``gradients`` are those of the three outputs: all scores, scores within rows, scores within columns. The last
        two are added to the first in place, or to a copy if the backward pass is differentiated too. This is safe
        because no other function uses the gradient of all scores.
        """
        total = gradients[0].clone() if torch.is_grad_enabled() else gradients[0]
        for axis, gradient in enumerate(gradients[1:]):
            within_lines(total, ctx.grid)[axis].add_(gradient)
        return total, None


def within_lines(scores: Tensor, grid: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Returns two views of scores (G, T, T): for pairs in the same row (G, R, C, C) and in the same column (G, R, C, R).

    Axes R and C are row and column of the query, the last axis is the column (or row) of the key. The patches are the
    last R·C of T tokens, ``grid`` is (R, C), and G is batch times heads.
    """
    count = grid[0] * grid[1]
    pairs = scores[:, -count:, -count:].unflatten(2, grid).unflatten(1, grid)  # (G, R, C, R, C)
    return pairs.diagonal(dim1=1, dim2=3).movedim(-1, 1), pairs.diagonal(dim1=2, dim2=4).movedim(-1, 2)


class AddDistances(torch.autograd.Function):
    """Adds factor · ‖z_i − z_n‖₂ to the attention score of each pair of patches i and n, in place.

    Scores are (G, T, T), with G batch times heads and the patches the last N of T tokens. There are one or more tensors
    of vectors z (G, N, L), one vector of length L per patch; the distances of each are added. The backward pass
    recomputes the distances from the vectors instead of storing (N, N) tensors. A distance of zero has a gradient of
    zero. Double backward is supported.
    """

    @staticmethod
    def forward(ctx: Any, scores: Tensor, factor: float, *vectors: Tensor) -> Tensor:
        """Returns the scores (G, T, T) plus ``factor`` · ‖z_i − z_n‖₂ for each pair of patches i and n, added in place.

        ``vectors`` are one or more tensors z (G, N, L), a vector of length L per patch; the distances of each are
        added. G is batch times heads, and the patches are the last N of T tokens.
        """
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
        """Returns the loss gradients with respect to the scores, factor (None) and each tensor z (G, N, L) of vectors.

        ``gradients`` has one entry g (G, T, T), that of the output, which is also the gradient of the scores. The
        gradient of the vector z_i of patch i is factor · Σ_n (g_in + g_ni)(z_i − z_n)/‖z_i − z_n‖, summed over patches
        n. G is batch times heads.
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

    ``unit`` (G, 1, 1) is the largest norm of the centered vectors. With z centered and divided by it, left = (1, ‖z‖²,
    −2z) and right = (‖z‖², 1, z) are (G, N, L + 2). G is batch times heads.
    """
    z = centered(z)
    size = z.square().sum(-1, keepdim=True)
    unit = size.amax(1, keepdim=True).sqrt_().clamp_min_(1e-15)  # its square must not underflow
    z, size = z.div_(unit), size.div_(unit.square())
    one = torch.ones_like(size)
    return (torch.cat([one, size, z.mul(-2)], -1), torch.cat([size, one, z], -1)), unit


def centered(z: Tensor) -> Tensor:
    """Returns z (…, N, L) minus its mean over the N tokens, in float32 or better, for accurate differences of squares."""
    z = z.to(torch.promote_types(z.dtype, torch.float32))
    return z - z.mean(-2, keepdim=True)


def _squares(left: Tensor, right: Tensor, zero: float) -> Tensor:
    """Returns left·rightᵀ (G, N, N), squared distances of N vectors; those below the rounding error become ``zero``.

    ``left`` and ``right`` (G, N, L + 2) are two tensors made of the vectors, scaled to norms of at most 1, by `_sides`.
    """
    squares = without_autocast(left.device, lambda: torch.bmm(left, right.mT))
    return F.threshold(squares, rounding(squares), zero, inplace=True)


def _towards(z: Tensor, both: Tensor) -> Tensor:
    """Returns the gradient of the loss with respect to vectors z (G, N, L), through their distances ‖z_i − z_n‖₂.

    ``both`` (G, N, N) is factor · (g + gᵀ), with g the gradient with respect to the attention scores of patches, to
    which factor · distance was added. All operations are differentiable, for double backward. G is batch times heads.
    """
    wide = centered(z)
    size = wide.square().sum(-1)
    squares = size[..., :, None] + size[..., None, :] - 2 * (wide @ wide.mT)
    near = squares <= rounding(squares) * size.amax(1)[:, None, None]
    near = near | torch.eye(z.shape[-2], dtype=torch.bool, device=z.device)
    weights = torch.where(near, 0, both / torch.where(near, 1, squares).sqrt())
    return (weights.sum(-1, keepdim=True) * wide - weights @ wide).to(z.dtype)


def rounding(squares: Tensor) -> float:
    """Returns the limit up to which a squared distance counts as rounding error: 32 times the epsilon of its dtype.

    The distances are those of vectors of norm at most 1. Only the dtype of ``squares`` is used.
    """
    return 32 * torch.finfo(squares.dtype).eps

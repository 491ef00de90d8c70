"""Two-dimensional semantic-aware positions (SaPE2; Chen et al., arXiv 2505.09466, 2025)."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn

from vitpos.encodings.base import Geometry, PositionEncoding, where_pairs
from vitpos.encodings.steps import lookup
from vitpos.errors import UserError
from vitpos.positions import Positions


class SaPE2(PositionEncoding):
    """Positions counted by content along rows and columns; how much two patches' counts differ is added to the logits.

    Along a row, patch i gives column m the count p_im = Σ σ(q_i·k_j/√d) over the patches j of its row from m to the right
    edge; z_im = k_i·e[p_im] with a trained vector e per whole count; the bias of i and n is ‖z_i − z_n‖₂. The same along
    columns, to the bottom edge, with a table of its own; both add up, and are divided by √d with q·k (eq. 9–16).

    Where paper, appendix and prototype differ, each choice is an option with the recommended one as default:
    ``dot`` what is multiplied with e, ``k`` (the better one in Table 2) or ``q`` (eq. 12); ``scaled_gates`` σ of the
    scaled product (appendix) or the plain one (eq. 9); ``divide`` the bias by √d (eq. 16) or not (prototype); ``steps``
    whole counts per table, by default one more than the axis has places (prototype: 10); ``sign`` +1 as published, −1 as
    a control, since a distance that is added draws attention to patches that are *unlike*. Pairs with a prefix token get
    nothing. ``axes=False`` counts over all patches in row-major order instead, ``gated=False`` counts places instead of
    gates: the two ablations.

    Facts, tested: the row part is equivariant to any permutation of rows, and so to vertical shifts, but not to
    horizontal ones, because counts are anchored at the right edge. The paper's abstract says otherwise. Without gates no
    position is left, since every patch then counts alike (z is a linear map of k): all that SaPE2 knows of places comes
    through its gates.
    """

    source = "Chen et al., arXiv 2025"
    traits = ("by-cell", "contextual", "trained")

    def __init__(
        self,
        geometry: Geometry,
        *,
        dot: Literal["k", "q"] = "k",
        scaled_gates: bool = True,
        divide: bool = True,
        steps: int | None = None,
        sign: Literal[1, -1] = 1,
        axes: bool = True,
        gated: bool = True,
    ):
        super().__init__()
        if steps is not None and steps < 2:
            raise UserError(f"encoding 'sape2' got steps={steps}; count to 2 or more")
        width = geometry.dim // geometry.heads
        self.dot, self.scaled_gates, self.gated = dot, scaled_gates, gated
        self.factor = sign * (width**-0.5 if divide else 1.0)
        rows, columns = geometry.grid
        lengths = (columns, rows) if axes else (rows * columns,)
        self.tables = nn.ParameterList(
            torch.randn(geometry.depth, steps or length + 1, width) * 0.02 for length in lengths
        )

    def bias(self, q: Tensor, k: Tensor, pos: Positions, layer: int) -> Tensor:
        """(B, H, N, N)."""
        count = pos.cells.shape[1]
        q, k = q[:, :, -count:], k[:, :, -count:]
        here = pos.known.to(q.dtype)  # (B|1, N): 1 where a patch lies whose place may be used
        cells = None
        if not pos.raster:
            cells = pos.cells.expand(len(q), -1)
            q, k = (_to_cells(x, cells, pos) for x in (q, k))
            here = _to_cells(here.expand(len(q), -1)[:, None, :, None], cells, pos)[:, 0, :, 0]
        vectors = [self._count(q, k, here, table[layer], pos.grid, axis) for axis, table in enumerate(self.tables)]
        bias: Tensor = SumOfDistances.apply(self.factor, *vectors)
        if cells is not None:
            heads = bias.shape[1]
            bias = bias.gather(2, cells[:, None, :, None].expand(-1, heads, -1, bias.shape[3]))
            bias = bias.gather(3, cells[:, None, None, :].expand(-1, heads, count, -1))
        return where_pairs(bias, pos)

    def _count(self, q: Tensor, k: Tensor, here: Tensor, table: Tensor, grid: tuple[int, int], axis: int) -> Tensor:
        """(B, H, cells, places of the line): for each cell, k·e at the count of every place of its row or column."""
        line = grid if len(self.tables) == 2 else (1, grid[0] * grid[1])
        q, k, here = q.unflatten(2, line), k.unflatten(2, line), here.unflatten(1, line)
        if axis == 1:
            q, k, here = q.transpose(2, 3), k.transpose(2, 3), here.transpose(1, 2)
        gates = here[:, None, :, None].expand(len(q), q.shape[1], -1, q.shape[3], -1)  # (B, H, lines, L, L)
        if self.gated:
            scale = q.shape[-1] ** -0.5 if self.scaled_gates else 1.0
            gates = torch.sigmoid(q @ k.mT * scale) * gates
        counts = gates.flip(-1).cumsum(-1).flip(-1)
        values = (k if self.dot == "k" else q) @ table.mT  # (B, H, lines, L, steps)
        z = lookup(values.flatten(2, 3), counts.flatten(2, 3))
        return z.unflatten(2, (-1, line[0])).transpose(2, 3).flatten(2, 3) if axis == 1 else z


def _to_cells(x: Tensor, cells: Tensor, pos: Positions) -> Tensor:
    """Tokens (B, H, N, d) laid into the cells of the grid (B, H, cells, d), empty ones zero."""
    empty = x.new_zeros(*x.shape[:2], pos.grid[0] * pos.grid[1], x.shape[3])
    return empty.scatter(2, cells[:, None, :, None].expand_as(x), x)


class SumOfDistances(torch.autograd.Function):
    """factor · Σ ‖z_i − z_n‖₂ over several sets of vectors z (B, H, N, L) → (B, H, N, N).

    Keeps the vectors alone and finds the distances again on the way back, so that no table of pairs waits in memory. A
    distance of zero has a gradient of zero. The way back can be gone twice: then it is made of differentiable steps.
    """

    @staticmethod
    def forward(ctx: Any, factor: float, *vectors: Tensor) -> Tensor:
        """The sum."""
        ctx.factor = factor
        ctx.save_for_backward(*vectors)
        total = _distances_in_place(vectors[0])
        for more in vectors[1:]:
            total += _distances_in_place(more)
        return total.mul_(factor)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """For each set: Σ_n (g_in + g_ni)(z_i − z_n)/‖z_i − z_n‖."""
        found: list[Tensor | None] = [None]
        both = (gradients[0] + gradients[0].mT) * ctx.factor
        for z in ctx.saved_tensors:
            if torch.is_grad_enabled():
                distances = _distances(z)
                weights = torch.where(distances == 0, 0, both / torch.where(distances == 0, 1, distances))
            else:
                weights = _distances_in_place(z).reciprocal_().nan_to_num_(posinf=0).mul_(both)
            found.append(weights.sum(-1, keepdim=True) * z - weights @ z)
        return tuple(found)


def _distances_in_place(z: Tensor) -> Tensor:
    """(B, H, N, L) → (B, H, N, N): Euclidean, by one product; zero where two vectors agree to rounding."""
    flat = (z - z.mean(-2, keepdim=True)).flatten(0, 1)
    size = flat.square().sum(-1)  # (B·H, N)
    squares = torch.baddbmm(size[:, None, :], flat, flat.mT, alpha=-2).add_(size[:, :, None])
    squares.diagonal(dim1=1, dim2=2).zero_()
    return squares.masked_fill_(squares <= _rounding(size), 0).sqrt_().unflatten(0, z.shape[:2])


def _distances(z: Tensor) -> Tensor:
    """The same in steps that can be differentiated, also where a distance is zero."""
    z = z - z.mean(-2, keepdim=True)
    size = z.square().sum(-1)
    squares = size[..., :, None] + size[..., None, :] - 2 * (z @ z.mT)
    near = (squares <= _rounding(size)) | torch.eye(z.shape[-2], dtype=torch.bool, device=z.device)
    return torch.where(near, 0, torch.where(near, 1, squares).sqrt())


def _rounding(size: Tensor) -> Tensor:
    """Squares up to this are rounding: what a sum of squares as large as the largest may be off by."""
    return 32 * torch.finfo(size.dtype).eps * size.max()

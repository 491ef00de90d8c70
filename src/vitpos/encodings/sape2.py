"""Two-dimensional semantic-aware positions (SaPE2; Chen et al., arXiv 2505.09466, 2025)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
import torch.nn.functional as F
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
        self.dot, self.scaled_gates, self.axes, self.gated = dot, scaled_gates, axes, gated
        self.factor = sign * (width**-0.5 if divide else 1.0)
        rows, columns = geometry.grid
        lengths = (columns, rows) if axes else (rows * columns,)
        self.tables = nn.ParameterList(
            torch.randn(geometry.depth, steps or length + 1, width) * 0.02 for length in lengths
        )

    def bias(self, q: Tensor, k: Tensor, pos: Positions, layer: int) -> Tensor:
        """(B, H, N, N), for patches that may lie anywhere and be hidden."""
        count, heads = pos.cells.shape[1], q.shape[1]
        q, k = q[:, :, -count:], k[:, :, -count:]
        here = pos.known.to(q.dtype).expand(len(q), -1)  # (B, N): 1 where a patch lies whose place may be used
        cells = None
        if not pos.raster:
            cells = pos.cells.expand(len(q), -1)
            q, k, here = (_to_cells(x, cells, pos.grid) for x in (q, k, here[:, None, :, None]))
            here = here[:, 0, :, 0]
        _, *lines = self._split(q, k, pos.grid)
        flat = self._add(q.new_zeros(len(q) * heads, *2 * q.shape[2:3]), lines, q, k, here, layer)
        bias = flat.unflatten(0, (-1, heads))
        if cells is not None:
            bias = bias.gather(2, cells[:, None, :, None].expand(-1, heads, -1, bias.shape[3]))
            bias = bias.gather(3, cells[:, None, None, :].expand(-1, heads, count, -1))
        return where_pairs(bias, pos)

    def score(self, q: Tensor, k: Tensor, pos: Positions, layer: int) -> Tensor | None:
        """The logits with the bias, where all patches are in their places: gates are sigmoids of some of them."""
        if pos.hiding or not pos.raster:
            return None
        q, k = q.contiguous(), k.contiguous()
        scores, *lines = self._split(q, k, pos.grid)
        return self._add(scores, lines, q, k, pos.known.to(q.dtype), layer).unflatten(0, q.shape[:2])

    def _split(self, q: Tensor, k: Tensor, grid: tuple[int, int]) -> tuple[Tensor, Tensor, Tensor]:
        """Scaled products of (B, H, T, d) as (B·H, T, T), and those within the lines that are counted along."""
        q, k, scale = q.flatten(0, 1), k.flatten(0, 1), q.shape[-1] ** -0.5
        scores = torch.baddbmm(q.new_empty(()), q, k.mT, beta=0, alpha=scale)
        lines: tuple[Tensor, Tensor, Tensor] = Lines.apply(scores, grid if self.axes else (1, grid[0] * grid[1]))
        return lines

    def _add(self, scores: Tensor, lines: Sequence[Tensor], q: Tensor, k: Tensor, here: Tensor, layer: int) -> Tensor:
        """Scores (B·H, T, T) with the bias, from the scaled products within rows and columns."""
        dotted = k if self.dot == "k" else q
        values = (dotted @ torch.cat([table[layer] for table in self.tables]).mT)[:, :, -here.shape[1] :]
        here = here.repeat_interleave(len(scores) // len(q), 0) if len(here) > 1 else here
        here = here.unflatten(1, lines[0].shape[1:3])
        sides = zip(
            lines,
            values.flatten(0, 1).split([table.shape[1] for table in self.tables], -1),
            (here[:, :, None], here.mT[:, None]),  # what lies in each cell's row, and column
            strict=False,
        )
        vectors = []
        for products, value, seen in sides:
            _, counts = self._count(products, seen, q.shape[-1])
            vectors.append(lookup(value, counts.flatten(1, 2)))
        added: Tensor = AddDistances.apply(scores, self.factor, *vectors)
        return added

    def _count(self, products: Tensor, seen: Tensor, width: int) -> tuple[Tensor, Tensor]:
        """Gates and counts (B·H, rows, columns, places of the line) of scaled products, where something is ``seen``."""
        gates = seen.expand_as(products)
        if self.gated:
            gates = torch.sigmoid(products if self.scaled_gates else products * width**0.5) * seen
        return gates, gates.flip(-1).cumsum(-1).flip(-1)

    def counts(self, q: Tensor, k: Tensor, pos: Positions, layer: int) -> list[tuple[Tensor, Tensor]]:
        """Along rows, then along columns: gates and counts (B, H, N, N) of each patch, NaN outside its line.

        For whoever wants to look at them, of patches that fill the grid in row-major order.
        """
        count = pos.cells.shape[1]
        assert count == pos.grid[0] * pos.grid[1] and not pos.hiding
        q, k = (x[:, :, -count:].contiguous() for x in (q, k))
        grid = pos.grid if self.axes else (1, count)
        found = []
        for axis, products in enumerate(self._split(q, k, pos.grid)[1 : 1 + len(self.tables)]):
            maps = [q.new_full((len(products), count, count), torch.nan) for _ in range(2)]
            for empty, values in zip(maps, self._count(products, torch.ones_like(products), q.shape[-1]), strict=True):
                _within_lines(empty, grid)[axis].copy_(values)
            gates, counts = (filled.unflatten(0, q.shape[:2]) for filled in maps)
            found.append((gates, counts))
        return found


def _to_cells(x: Tensor, cells: Tensor, grid: tuple[int, int]) -> Tensor:
    """Tokens (B, H, N, d) laid into the cells of the grid (B, H, cells, d), empty ones zero."""
    empty = x.new_zeros(*x.shape[:2], grid[0] * grid[1], x.shape[3])
    return empty.scatter(2, cells[:, None, :, None].expand_as(x), x)


class Lines(torch.autograd.Function):
    """Of scores (G, T, T) whose last N tokens fill a grid (R, C): the pairs within rows and within columns.

    Gives the scores back, then (G, R, C, C) and (G, R, C, R). As one step its way back fills no table with zeros.
    """

    @staticmethod
    def forward(ctx: Any, scores: Tensor, grid: tuple[int, int]) -> tuple[Tensor, Tensor, Tensor]:
        """Copies of the lines."""
        ctx.grid = grid
        ctx.mark_dirty(scores)
        rows, columns = _within_lines(scores, grid)
        return scores, rows.contiguous(), columns.contiguous()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """Each line's gradient added in its place: into the one that AddDistances hands on, which nobody else holds."""
        total = gradients[0].clone() if torch.is_grad_enabled() else gradients[0]
        for axis, gradient in enumerate(gradients[1:]):
            _within_lines(total, ctx.grid)[axis].add_(gradient)
        return total, None


def _within_lines(scores: Tensor, grid: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Views."""
    count = grid[0] * grid[1]
    pairs = scores[:, -count:, -count:].unflatten(2, grid).unflatten(1, grid)  # (G, R, C, R, C)
    return pairs.diagonal(dim1=1, dim2=3).movedim(-1, 1), pairs.diagonal(dim1=2, dim2=4).movedim(-1, 2)


class AddDistances(torch.autograd.Function):
    """Adds factor · Σ ‖z_i − z_n‖₂ over several sets of vectors z (G, N, L) to the last N × N of (G, T, T), in place.

    Keeps the vectors alone and finds the distances again on the way back, so that no table of pairs waits in memory. A
    distance of zero has a gradient of zero. The way back can be gone twice: then it is made of differentiable steps.
    """

    @staticmethod
    def forward(ctx: Any, scores: Tensor, factor: float, *vectors: Tensor) -> Tensor:
        """The sum."""
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
        """For each set: Σ_n (g_in + g_ni)(z_i − z_n)/‖z_i − z_n‖."""
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
    """Two (G, N, L + 2) whose product is ‖z_i − z_n‖² in a unit that makes the longest z 1, and the units (G, 1, 1).

    The right one is (‖z‖², 1, z).
    """
    z = _centred(z)
    size = z.square().sum(-1, keepdim=True)
    unit = size.amax(1, keepdim=True).sqrt_().clamp_min_(1e-30)
    z, size = z.div_(unit), size.div_(unit.square())
    one = torch.ones_like(size)
    return (torch.cat([one, size, z.mul(-2)], -1), torch.cat([size, one, z], -1)), unit


def _centred(z: Tensor) -> Tensor:
    """Around their mean, in float32 or better: distances are differences of large squares."""
    z = z.to(torch.promote_types(z.dtype, torch.float32))
    return z - z.mean(-2, keepdim=True)


def _squares(left: Tensor, right: Tensor, zero: float) -> Tensor:
    """The squared distances (G, N, N), with ``zero`` where they are nothing but rounding."""
    squares = torch.bmm(left, right.mT)
    return F.threshold(squares, _rounding(squares), zero, inplace=True)


def _towards(z: Tensor, both: Tensor) -> Tensor:
    """The way back for one set in steps that can be differentiated, also where a distance is zero."""
    wide = _centred(z)
    size = wide.square().sum(-1)
    squares = size[..., :, None] + size[..., None, :] - 2 * (wide @ wide.mT)
    near = squares <= _rounding(squares) * size.amax(1)[:, None, None]
    near = near | torch.eye(z.shape[-2], dtype=torch.bool, device=z.device)
    weights = torch.where(near, 0, both / torch.where(near, 1, squares).sqrt())
    return (weights.sum(-1, keepdim=True) * wide - weights @ wide).to(z.dtype)


def _rounding(squares: Tensor) -> float:
    """Squares up to this are rounding, where the longest vector has length 1."""
    return 32 * torch.finfo(squares.dtype).eps

"""Semantic-aware 2-D position encoding (SaPE2; Chen et al., arXiv 2505.09466, 2025)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from vitpos.encodings._interp1d import interp1d
from vitpos.encodings._sape2_fused import centered, fused_logits, rounding, within_lines
from vitpos.encodings.base import Geometry, PositionEncoding
from vitpos.errors import InputError
from vitpos.positions import Positions, without_autocast


class SaPE2(PositionEncoding):
    """Adds to the logits the distance of two vectors, computed from counts of patches that are weighted by content.

    For patch i and column m of its row, the count is p_im = Σ σ(q_i·k_j/√d), a sum of gates σ between 0 and 1 over the
    patches j of the row from m to the right edge. Then z_im = k_i·e[p_im] with a learned vector e per integer count,
    interpolated, and the bias of patches i and n is ‖z_i − z_n‖₂. Columns are treated in the same way, to the bottom
    edge, with a separate table; the biases of rows and columns are added and, like q·k, divided by √d (eq. 9–16). Pairs
    with a prefix token get no bias. Where paper, appendix and prototype differ, the choice is an option.

    Properties that tests check: the row part is equivariant to any permutation of rows, and so to vertical translation,
    but not to horizontal translation, because counts start at the right edge; the abstract of the paper claims more.
    Without gates z is the same linear map of k for all patches, without position information.

    Args:
        mode: What is multiplied with e: ``key`` (the better one in Table 2) or ``query`` (eq. 12).
        scale_gates: Applies σ to q·k/√d (appendix) rather than to q·k (eq. 9).
        scale_bias: Divides the bias by √d (eq. 16); the prototype does not.
        max_positions: Number of integer counts per table; by default the number of cells along the axis plus 1
            (prototype: 10).
        sign: +1 as published, or −1 as a control, because adding a distance favors patches that are *different*.
        per_axis: Counts along rows and columns; False counts over all patches in row-major order (ablation).
        gates: Sums gates; False counts every patch as 1 (ablation).
        axes: The lines along which patches are counted: ``rows``, ``columns`` or ``both``; one alone is an ablation.
    """

    paper = "Chen et al., arXiv 2025"
    traits = ("index_only", "context_dependent", "learnable")

    def __init__(
        self,
        geometry: Geometry,
        *,
        mode: Literal["key", "query"] = "key",
        scale_gates: bool = True,
        scale_bias: bool = True,
        max_positions: int | None = None,
        sign: Literal[1, -1] = 1,
        per_axis: bool = True,
        gates: bool = True,
        axes: Literal["both", "rows", "columns"] = "both",
    ):
        super().__init__()
        if not per_axis and axes != "both":
            raise InputError(f"encoding 'sape2' got per_axis=False with axes='{axes}'; leave out one of the two")
        if max_positions is not None and max_positions < 2:
            raise InputError(f"encoding 'sape2' got max_positions={max_positions}; choose 2 or more")
        head_dim = geometry.dim // geometry.heads
        self.mode, self.scale_gates, self.per_axis, self.gates = mode, scale_gates, per_axis, gates
        self.factor = sign * (head_dim**-0.5 if scale_bias else 1.0)
        rows, columns = geometry.grid
        lengths = [columns, rows] if per_axis else [rows * columns]
        one_or_both = {"both": (0, 1), "rows": (0,), "columns": (1,)}[axes]
        self.axes = one_or_both if per_axis else (0,)  # 0: along rows, 1: along columns
        self.tables = nn.ParameterList(
            torch.randn(geometry.depth, max_positions or lengths[axis] + 1, head_dim) * 0.02 for axis in self.axes
        )

    def bias(self, q: Tensor, k: Tensor, pos: Positions, layer: int) -> Tensor:
        """Returns the bias (B, H, N, N) for the logits of patches, which may be any subset of the grid in any order.

        This is the readable form of the method; `fused_logits` computes the same, together with q·k, for full grids.
        """
        q, k = (x[:, :, -pos.index.shape[1] :] for x in (q, k))
        present = pos.known.expand(q.shape[0], -1)  # (B, N)
        if not pos.is_row_major:  # sort tokens into grid cells; empty cells count for nothing
            q, k, present = (_to_cells(x, pos) for x in (q, k, present[:, None, :, None]))
            present = present[:, 0, :, 0]
        content = k if self.mode == "key" else q
        bias = q.new_zeros(())
        for table, (_, counts) in zip(self.tables, self._counts(q, k, pos.grid, present.to(q.dtype)), strict=True):
            z = interp1d(content @ table[layer].mT, counts)  # (B, H, cells, length of the line)
            bias = bias + self.factor * pairwise_distances(z)
        return bias if pos.is_row_major else _to_tokens(bias, pos)

    def fused_logits(self, q: Tensor, k: Tensor, pos: Positions, layer: int) -> Tensor | None:
        """Returns the attention logits (B, H, T, T) of q and k (B, H, T, d), bias included; None unless cells are in order.

        Faster than adding ``bias``, because the gates reuse q·k. A training step takes 1.18 times as long as without a
        position encoding at 8×8 patches (1.33 times with ``bias``) and 1.23 times at 14×14 (1.54 times with ``bias``),
        as measured by ``benchmarks/encodings.py --sape2``.
        """
        return fused_logits(self, q, k, pos, layer) if pos.is_row_major else None

    def counts(self, q: Tensor, k: Tensor, pos: Positions, layer: int) -> list[tuple[Tensor, Tensor]]:
        """Returns [(gates, counts) along rows, (gates, counts) along columns], each tensor (B, H, N, N), for inspection.

        With ``axes="rows"`` or ``"columns"`` the list has one entry, and with ``per_axis=False`` one along the
        row-major order. A gate σ(q_i·k_j/√d), 0 to 1, is the weight with which patch i counts patch j of its row (or
        column); a count is the sum of the gates from j to the end of the row (or column). Pairs of different rows (or
        columns) are NaN. Only for full grids in row-major order.
        """
        count = pos.index.shape[1]
        assert count == pos.grid[0] * pos.grid[1] and not pos.has_hidden
        q, k = (x[:, :, -count:] for x in (q, k))
        found = []
        for axis, lines in zip(self.axes, self._counts(q, k, pos.grid, pos.known.to(q.dtype)), strict=True):
            maps = [q.new_full((*q.shape[:2], count, count), torch.nan) for _ in lines]
            for empty, values in zip(maps, lines, strict=True):
                grid = pos.grid if self.per_axis else (1, count)
                within_lines(empty.flatten(0, 1), grid)[axis].copy_(values.unflatten(2, grid).flatten(0, 1))
            found.append((maps[0], maps[1]))
        return found

    def _counts(self, q: Tensor, k: Tensor, grid: tuple[int, int], present: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Returns [(gates, counts) along rows, (gates, counts) along columns], each tensor (B, H, cells, length).

        Entry (i, j) of the last two axes is the gate or count of the patch in grid cell i for patch j of its row (or
        column), which has ``length`` patches. A gate σ(q_i·k_j/√d) is the weight with which j is counted; a count is
        the sum of the gates from j to the end. There is one tuple for each of ``self.axes``; without ``per_axis`` it is
        along the row-major order.
        ``present`` (B|1, cells) is 1 where a grid cell has a patch with a known (not masked) position.
        """
        rows, columns = grid if self.per_axis else (1, grid[0] * grid[1])
        found = []
        for axis in self.axes:
            lines = [x.unflatten(2, (rows, columns)) for x in (q, k)]  # (B, H, R, C, d)
            here = present.unflatten(1, (rows, columns))[:, None]  # (B|1, 1, R, C)
            if axis:
                lines, here = [x.transpose(2, 3) for x in lines], here.mT
            products = lines[0] @ lines[1].mT * q.shape[-1] ** -0.5  # (B, H, lines, length, length)
            gates, counts = self.count(products, here[..., None, :], q.shape[-1])
            if axis:
                gates, counts = gates.transpose(2, 3), counts.transpose(2, 3)
            found.append((gates.flatten(2, 3), counts.flatten(2, 3)))
        return found

    def count(self, products: Tensor, present: Tensor, width: int) -> tuple[Tensor, Tensor]:
        """Returns gates and counts (…, length) along a row or column of patches, from scaled products q·k/√d (…, length).

        A gate σ(q·k/√d), 0 to 1, is the weight with which a patch is counted; a count is the sum of the gates from that
        patch to the end of the row or column. ``present`` is 1 where there is a patch with a known (not masked)
        position, otherwise 0; ``width`` is the head width d.
        """
        gates = present.expand_as(products)
        if self.gates:
            gates = torch.sigmoid(products if self.scale_gates else products * width**0.5) * present
        wide = torch.promote_types(gates.dtype, torch.float32)
        return gates, gates.to(wide).flip(-1).cumsum(-1).flip(-1)


def pairwise_distances(z: Tensor) -> Tensor:
    """Returns the Euclidean distances (…, N, N) of vectors (…, N, L), with a gradient of zero where a distance is zero."""
    wide = centered(z)
    squared_norms = wide.square().sum(-1)
    products = without_autocast(z.device, lambda: wide @ wide.mT)
    squares = squared_norms[..., :, None] + squared_norms[..., None, :] - 2 * products
    zero = squares <= rounding(squares) * squared_norms.amax(-1)[..., None, None]
    zero = zero | torch.eye(z.shape[-2], dtype=torch.bool, device=z.device)
    return torch.where(zero, 0, torch.where(zero, 1, squares).sqrt()).to(z.dtype)


def _to_cells(x: Tensor, pos: Positions) -> Tensor:
    """Arranges tokens (B, H, N, d) by their grid cells: (B, H, cells, d), with zeros in cells without a token."""
    empty = x.new_zeros(*x.shape[:2], pos.grid[0] * pos.grid[1], x.shape[3])
    return empty.scatter(2, pos.index.expand(x.shape[0], -1)[:, None, :, None].expand_as(x), x)


def _to_tokens(bias: Tensor, pos: Positions) -> Tensor:
    """Returns the bias of pairs of tokens (B, H, N, N) from a bias of pairs of grid cells (B, H, cells, cells)."""
    (batch, heads), count = bias.shape[:2], pos.index.shape[1]
    cells = pos.index.expand(batch, -1)
    bias = bias.gather(2, cells[:, None, :, None].expand(-1, heads, -1, bias.shape[3]))
    return bias.gather(3, cells[:, None, None, :].expand(-1, heads, count, -1))

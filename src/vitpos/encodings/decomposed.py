"""Decomposed relative positions (MViTv2; Li et al., CVPR 2022; also SAM): a row term and a column term."""

from __future__ import annotations

from copy import deepcopy
from functools import partial

import torch
from torch import Tensor, nn

from vitpos.encodings._interp1d import floor_and_weight, gather1d
from vitpos.encodings._table_interpolation import resize_table
from vitpos.encodings.base import Geometry, PositionEncoding
from vitpos.positions import Positions


class DecomposedBias(PositionEncoding):
    """Adds q·(r_row[Δrow] + r_column[Δcolumn]) to the logits, with learned vectors r per axis, layer and offset.

    Tables are shared by the heads of a layer and start at zero; q is not scaled, as in the code of MViTv2 and SAM. At
    fractional offsets, as on a finer grid, the bias is interpolated; for offsets larger than in training the last
    entries are repeated.
    """

    paper = "Li et al. (MViTv2), CVPR 2022"
    traits = ("translation_invariant", "learnable", "resizable")

    def __init__(self, geometry: Geometry):
        super().__init__()
        head_dim = geometry.dim // geometry.heads
        self.train_grid = geometry.grid
        rows, columns = (2 * side - 1 for side in geometry.grid)
        self.rows = nn.Parameter(torch.zeros(geometry.depth, rows, head_dim))
        self.columns = nn.Parameter(torch.zeros(geometry.depth, columns, head_dim))

    def bias(self, q: Tensor, k: Tensor, pos: Positions, layer: int) -> Tensor:
        """Returns the bias (B, H, N, N) that is added to the logits of patches, from the queries q (B, H, T, d)."""
        q = q[:, :, -pos.index.shape[1] :]
        terms = []
        for axis, table in enumerate((self.rows[layer], self.columns[layer])):
            make = partial(self._entries, pos, axis, len(table), q.dtype)
            entries = self.cached(pos, f"entries of axis {axis} in {len(table)}", make, q.dtype)
            terms.append(gather1d(q @ table.mT, *entries))
        return terms[0] + terms[1]

    def _entries(self, pos: Positions, axis: int, count: int, dtype: torch.dtype) -> tuple[Tensor, Tensor | None]:
        """Returns (index, weight), both (B|1, 1, N, N), to interpolate a table of ``count`` offsets along one axis.

        ``axis`` is 0 for rows and 1 for columns. For each pair of patches, ``index`` is the table entry at or below
        their offset, and ``weight``, 0 to 1 in ``dtype``, is the weight of the next entry. The weight is None if all
        offsets are integers.
        """
        zero = (count - 1) // 2
        scale = (zero + 1) / self.train_grid[axis]  # 1 unless the table was resized
        at = (pos.offsets()[..., axis][:, None] * scale + zero).to(dtype).clamp(0, count - 1)
        if not torch.compiler.is_compiling() and torch.equal(at, at.round()):
            return at.long(), None
        return floor_and_weight(at, count)

    def resized(self, grid: tuple[int, int], *, mode: str = "bicubic") -> DecomposedBias:
        """Returns a copy whose row and column tables are resampled for another ``grid`` = (rows, columns).

        ``mode`` is the interpolation, such as ``"bicubic"`` or ``"bilinear"``.
        """
        new = deepcopy(self)
        for name, side in zip(("rows", "columns"), grid, strict=True):
            table = getattr(self, name).detach()  # (depth, offsets, d): every layer is resampled separately
            larger = torch.stack([resize_table(one[None], (1, 2 * side - 1), mode=mode)[0] for one in table])
            setattr(new, name, nn.Parameter(larger))
        return new

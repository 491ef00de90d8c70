"""Decomposed relative positions (MViTv2; Li et al., CVPR 2022; also SAM): a row term and a column term."""

from __future__ import annotations

from copy import deepcopy
from functools import partial

import torch
from torch import Tensor, nn

from vitpos.encodings.base import Geometry, PositionEncoding
from vitpos.encodings.steps import between, read
from vitpos.encodings.tables import resample
from vitpos.positions import Positions


class Decomposed(PositionEncoding):
    """q·(r_row[Δrow] + r_column[Δcolumn]) added to the logits; a trained vector per offset of each axis and layer.

    Tables are shared by the heads of a layer and start at zero; q is not scaled, as in both releases. Between offsets
    the products are interpolated, beyond the tables their border repeats.
    """

    paper = "Li et al. (MViTv2), CVPR 2022"
    traits = ("relative", "trained", "stored")

    def __init__(self, geometry: Geometry):
        super().__init__()
        width = geometry.dim // geometry.heads
        self.span = geometry.grid
        rows, columns = (2 * side - 1 for side in geometry.grid)
        self.rows = nn.Parameter(torch.zeros(geometry.depth, rows, width))
        self.columns = nn.Parameter(torch.zeros(geometry.depth, columns, width))

    def bias(self, q: Tensor, k: Tensor, pos: Positions, layer: int) -> Tensor:
        """(B, H, N, N)."""
        q = q[:, :, -pos.cells.shape[1] :]
        tables = self.rows[layer], self.columns[layer]
        sizes = len(tables[0]), len(tables[1])
        steps = [
            self.cached(pos, f"axis {axis} of {sizes}", partial(self._steps, pos, axis, sizes[axis], q.dtype), q.dtype)
            for axis in (0, 1)
        ]
        row, column = (read(q @ table.mT, *where) for table, where in zip(tables, steps, strict=True))
        return row + column

    def _steps(self, pos: Positions, axis: int, count: int, dtype: torch.dtype) -> tuple[Tensor, Tensor | None]:
        """Which entries of an axis' table the pairs (B|1, 1, N, N) read, and how far between; alone where all are whole."""
        zero = (count - 1) // 2
        share = (zero + 1) / self.span[axis]  # 1 unless the table was resampled
        at = (pos.offsets()[..., axis][:, None] * share + zero).to(dtype).clamp(0, count - 1)
        if not torch.compiler.is_compiling() and torch.equal(at, at.round()):
            return at.long(), None
        return between(at, count)

    def resized(self, grid: tuple[int, int], *, how: str = "bicubic") -> Decomposed:
        """Both tables resampled along their one axis."""
        new = deepcopy(self)
        for name, side in zip(("rows", "columns"), grid, strict=True):
            table = getattr(self, name).detach()  # (depth, offsets, d): every layer keeps to itself
            wide = torch.stack([resample(one[None], (1, 2 * side - 1), how=how)[0] for one in table])
            setattr(new, name, nn.Parameter(wide))
        return new

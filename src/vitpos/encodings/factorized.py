"""Factorized position embeddings: one table for rows and one for columns (NaViT; Dehghani et al., NeurIPS 2023)."""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import Tensor, nn

from vitpos.encodings._table_interpolation import Taps, gather, interpolation_weights, rescale_coords, resize_table
from vitpos.encodings.base import Geometry, PositionEncoding
from vitpos.positions import Positions


class Factorized(PositionEncoding):
    """Adds a learned vector per row plus a learned vector per column to the patch tokens.

    At fractional coordinates, as on a finer grid, vectors are interpolated linearly; beyond the training grid the last
    vector is repeated.

    Args:
        std: Standard deviation of the initial values.
        fractional: Reads the tables by relative position, so that the tables always span the whole grid: the middle row
            of any grid reads the middle of the row table. By default they are read at row and column.
    """

    paper = "Dehghani et al. (NaViT), NeurIPS 2023"
    traits = ("learnable", "resizable")

    def __init__(self, geometry: Geometry, *, std: float = 0.02, fractional: bool = False):
        super().__init__()
        self.fractional, self.train_grid = fractional, geometry.grid
        self.rows = nn.Parameter(torch.randn(geometry.grid[0], geometry.dim) * std)
        self.columns = nn.Parameter(torch.randn(geometry.grid[1], geometry.dim) * std)

    def vectors(self, pos: Positions, layer: int, dtype: torch.dtype) -> Tensor | None:
        """Returns vectors (B|1, N, D) to add to the patch tokens before the first block: row plus column vector."""
        if layer:
            return None
        sizes = len(self.rows), len(self.columns)
        rows, columns = self.cached(pos, f"weights in {sizes}", lambda: self._weights(pos, sizes))
        return gather(self.rows, rows) + gather(self.columns, columns)

    def _weights(self, pos: Positions, sizes: tuple[int, int]) -> tuple[Taps, Taps]:
        coords = rescale_coords(pos.coords, self.train_grid, sizes)
        if self.fractional:
            cells = pos.index // pos.grid[1], pos.index % pos.grid[1]
            scales = [(size - 1) / torch.sym_max(side - 1, 1) for size, side in zip(sizes, pos.grid, strict=True)]
            coords = torch.stack([one.to(coords) * scale for one, scale in zip(cells, scales, strict=True)], -1)
        rows, columns = (torch.stack([axis, torch.zeros_like(axis)], -1) for axis in coords.unbind(-1))
        return (
            interpolation_weights(rows, (sizes[0], 1), mode="bilinear"),
            interpolation_weights(columns, (sizes[1], 1), mode="bilinear"),
        )

    def resized(self, grid: tuple[int, int], *, mode: str = "bicubic") -> Factorized:
        """Returns a copy whose row and column tables are resampled for another ``grid`` = (rows, columns).

        ``mode`` is the interpolation, such as ``"bicubic"`` or ``"bilinear"``.
        """
        new = deepcopy(self)
        new.rows = nn.Parameter(resize_table(self.rows.detach()[:, None], (grid[0], 1), mode=mode)[:, 0])
        new.columns = nn.Parameter(resize_table(self.columns.detach()[:, None], (grid[1], 1), mode=mode)[:, 0])
        return new

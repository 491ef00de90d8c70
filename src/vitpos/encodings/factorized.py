"""Factorized learned positions (NaViT; Dehghani et al., NeurIPS 2023): a table for rows and one for columns."""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import Tensor, nn

from vitpos.encodings.base import Geometry, PositionEncoding
from vitpos.encodings.tables import across, read, resample, taps
from vitpos.positions import Positions


class Factorized(PositionEncoding):
    """A trained vector per row plus a trained vector per column, added to the tokens.

    Absolute coordinates read the tables at the row and column, in patches. ``fractional`` reads them at the share of
    the way across the grid that the tokens lie on, whatever its size: the first place is the first row of the table, the
    last the last. Between entries vectors are interpolated, beyond them the last repeats.
    """

    paper = "Dehghani et al. (NaViT), NeurIPS 2023"
    traits = ("trained", "stored")

    def __init__(self, geometry: Geometry, *, std: float = 0.02, fractional: bool = False):
        super().__init__()
        self.fractional, self.span = fractional, geometry.grid
        self.rows = nn.Parameter(torch.randn(geometry.grid[0], geometry.dim) * std)
        self.columns = nn.Parameter(torch.randn(geometry.grid[1], geometry.dim) * std)

    def vectors(self, pos: Positions, layer: int, dtype: torch.dtype) -> Tensor | None:
        """Returns the row's vector plus the column's: (B|1, N, D)."""
        if layer:
            return None
        sizes = len(self.rows), len(self.columns)
        rows, columns = self.cached(pos, f"taps of {sizes}", lambda: self._taps(pos, sizes))
        return read(self.rows, rows) + read(self.columns, columns)

    def _taps(self, pos: Positions, sizes: tuple[int, int]) -> tuple[tuple[Tensor, Tensor | None], ...]:
        coords = across(pos.coords, self.span, sizes)
        if self.fractional:
            cells = torch.stack([pos.cells // pos.grid[1], pos.cells % pos.grid[1]], -1)
            spans = [(size - 1) / max(side - 1, 1) for size, side in zip(sizes, pos.grid, strict=True)]
            coords = cells * coords.new_tensor(spans)
        axes = (torch.stack([coords[..., axis], torch.zeros_like(coords[..., axis])], -1) for axis in (0, 1))
        return tuple(taps(one, (size, 1), how="bilinear") for one, size in zip(axes, sizes, strict=True))

    def resized(self, grid: tuple[int, int], *, how: str = "bicubic") -> Factorized:
        """Both tables resampled along their one axis."""
        new = deepcopy(self)
        new.rows = nn.Parameter(resample(self.rows.detach()[:, None], (grid[0], 1), how=how)[:, 0])
        new.columns = nn.Parameter(resample(self.columns.detach()[:, None], (grid[1], 1), how=how)[:, 0])
        return new

"""Coordinate channels (CoordConv; Liu et al., NeurIPS 2018) as a position encoding."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from vitpos.encodings._table_interpolation import unit_coords
from vitpos.encodings.base import Geometry, PositionEncoding
from vitpos.errors import InputError
from vitpos.positions import Positions


class CoordConv(PositionEncoding):
    """Adds a learned linear function of row and column to the tokens: W·(row, column) or W·(row, column, radius).

    Coordinates run from −1 to 1 over the training grid, edge to edge. This equals CoordConv for the projection of
    patches, which adds row and column as channels beside the colors: the projection of these channels is a linear
    function of the patch's coordinates plus a constant (`tests/encodings/test_coordconv.py` checks this). The optional
    third channel, the distance from the center, is not linear; here it is evaluated at the center of the patch.

    Args:
        radius: Adds the distance from the center of the training grid, √(row² + column²), as a third input.
        std: Standard deviation of the initial weights.
    """

    paper = "Liu et al., NeurIPS 2018"
    traits = ("learnable",)

    def __init__(self, geometry: Geometry, *, radius: bool = False, std: float = 0.02):
        super().__init__()
        if std < 0:
            raise InputError(f"encoding 'coordconv' got std={std}; choose 0 or more")
        self.radius, self.train_grid = radius, geometry.grid
        self.weight = nn.Parameter(torch.randn(3 if radius else 2, geometry.dim) * std)

    def vectors(self, pos: Positions, layer: int, dtype: torch.dtype) -> Tensor | None:
        """Returns vectors (B|1, N, D) to add to the patch tokens before the first block: W·(row, column)."""
        if layer:
            return None
        return self.cached(pos, "channels", lambda: self._channels(pos, dtype), dtype) @ self.weight.to(dtype)

    def _channels(self, pos: Positions, dtype: torch.dtype) -> Tensor:
        coords = unit_coords(pos, self.train_grid, torch.promote_types(dtype, torch.float32))
        if self.radius:
            coords = torch.cat([coords, coords.norm(dim=-1, keepdim=True)], -1)
        return coords.to(dtype)  # (B|1, N, 2 or 3)

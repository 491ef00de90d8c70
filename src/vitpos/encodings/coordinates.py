"""A network from the coordinates of a place to its vector."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from vitpos.encodings.base import Geometry, PositionEncoding, positive, where_known
from vitpos.positions import Positions


class Coordinates(PositionEncoding):
    """A GELU network of row and column, from −1 to 1 over the training grid, added to the tokens."""

    source = "a coordinate network; no one source"
    traits = ("trained",)

    def __init__(self, geometry: Geometry, *, hidden: int = 128):
        super().__init__()
        positive("coordinates", hidden=hidden)
        self.grid = geometry.grid
        self.network = nn.Sequential(nn.Linear(2, hidden), nn.GELU(), nn.Linear(hidden, geometry.dim))

    def embed(self, x: Tensor, pos: Positions) -> Tensor:
        """Adds to each token the vector of its place."""
        return x + where_known(self.network(unit(pos, self.grid, x.dtype)), pos)


def unit(pos: Positions, grid: tuple[int, int], dtype: torch.dtype) -> Tensor:
    """(B|1, N, 2): coordinates from −1 to 1 over the training grid, border to border."""
    coords = pos.coords.to(dtype)
    return (coords + 0.5) * 2 / coords.new_tensor(grid) - 1

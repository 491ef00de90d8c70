"""A network from the coordinates of a place to its vector."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from vitpos.encodings.base import Geometry, PositionEncoding, positive, where_known
from vitpos.positions import Positions


class Coordinates(PositionEncoding):
    """A network of row and column, from −1 to 1 over the training grid, added to the tokens.

    ``act`` is what its ``hidden`` units do. Smooth units of default weights are nearly the same few functions of the place:
    the condition of 64 places is 1e13, of ``relu`` 1e3, and that is what decides how much a shared gradient gives away.
    """

    source = "a coordinate network; no one source"
    traits = ("trained",)

    def __init__(self, geometry: Geometry, *, hidden: int = 128, act: Literal["gelu", "relu"] = "gelu"):
        super().__init__()
        positive("coordinates", hidden=hidden)
        self.grid = geometry.grid
        units = {"gelu": nn.GELU, "relu": nn.ReLU}[act]()
        self.network = nn.Sequential(nn.Linear(2, hidden), units, nn.Linear(hidden, geometry.dim))

    def embed(self, x: Tensor, pos: Positions) -> Tensor:
        """Adds to each token the vector of its place."""
        return x + where_known(self.network(unit(pos, self.grid, x.dtype)), pos)


def unit(pos: Positions, grid: tuple[int, int], dtype: torch.dtype) -> Tensor:
    """(B|1, N, 2): coordinates from −1 to 1 over the training grid, border to border."""
    coords = pos.coords.to(dtype)
    return (coords + 0.5) * 2 / coords.new_tensor(grid) - 1

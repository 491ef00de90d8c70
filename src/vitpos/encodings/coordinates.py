"""A network from the coordinates of a place to its vector."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from vitpos.encodings.base import Geometry, PositionEncoding, check_positive
from vitpos.encodings.tables import unit_coords
from vitpos.positions import Positions


class Coordinates(PositionEncoding):
    """A network of row and column, from −1 to 1 over the training grid, added to the tokens.

    ``act`` is what its ``hidden`` units do. Smooth units of default weights are nearly the same few functions of the place:
    the condition of 64 places is 1e13, of ``relu`` 1e3, and that is what decides how much a shared gradient gives away.
    """

    paper = "a coordinate network; no one source"
    traits = ("trained",)

    def __init__(self, geometry: Geometry, *, hidden: int = 128, act: Literal["gelu", "relu"] = "gelu"):
        super().__init__()
        check_positive("coordinates", hidden=hidden)
        self.grid = geometry.grid
        units = {"gelu": nn.GELU, "relu": nn.ReLU}[act]()
        self.network = nn.Sequential(nn.Linear(2, hidden), units, nn.Linear(hidden, geometry.dim))

    def vectors(self, pos: Positions, layer: int, dtype: torch.dtype) -> Tensor | None:
        """Returns the network's output for each position: (B|1, N, D)."""
        return None if layer else self.network(unit_coords(pos, self.grid, dtype))

"""Position vectors computed by an MLP from the coordinates."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from vitpos.encodings._table import unit_coords
from vitpos.encodings.base import Geometry, PositionEncoding, check_positive
from vitpos.positions import Positions


class CoordinateMLP(PositionEncoding):
    """Adds the output of a two-layer MLP of row and column, which run from −1 to 1 over the training grid.

    With the default initialization, smooth units are nearly linear functions of the position, so that the vectors of 64
    positions have a condition number of 1e13 with GELU and of 1e3 with ReLU; this decides how much a shared gradient
    reveals.

    Args:
        hidden_dim: Number of hidden units.
        activation: Activation function of the hidden units.
    """

    paper = "common practice, no single source"
    traits = ("learnable",)

    def __init__(self, geometry: Geometry, *, hidden_dim: int = 128, activation: Literal["gelu", "relu"] = "gelu"):
        super().__init__()
        check_positive("coordinate_mlp", hidden_dim=hidden_dim)
        self.train_grid = geometry.grid
        units = {"gelu": nn.GELU, "relu": nn.ReLU}[activation]()
        self.network = nn.Sequential(nn.Linear(2, hidden_dim), units, nn.Linear(hidden_dim, geometry.dim))

    def vectors(self, pos: Positions, layer: int, dtype: torch.dtype) -> Tensor | None:
        """Returns the MLP's output for each position: (B|1, N, D)."""
        return None if layer else self.network(unit_coords(pos, self.train_grid, dtype))

"""Position vectors computed by an MLP from the coordinates."""

from __future__ import annotations

from typing import Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitpos.encodings._table_interpolation import unit_coords
from vitpos.encodings.base import Geometry, PositionEncoding, check_positive
from vitpos.positions import Positions


class CoordinateMLP(PositionEncoding):
    """Adds the output of a two-layer MLP of row and column, which run from −1 to 1 over the training grid.

    The activation affects how well an attack can reconstruct images from a gradient that is shared in federated
    learning. With the default initialization, GELU units are nearly linear functions of the position: the matrix of the
    vectors of 64 positions has a condition number of 1e13, and of 1e3 with ReLU. Attacks that solve a linear system
    need a small condition number.

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
        """Returns vectors (B|1, N, D) to add to the patch tokens before the first block: the MLP's outputs."""
        if layer:
            return None
        hidden = pos.without_autocast(lambda: self._hidden(pos, dtype))
        return self.network[2](self.network[1](hidden))

    def _hidden(self, pos: Positions, dtype: torch.dtype) -> Tensor:
        """Returns the hidden units (B|1, N, hidden_dim) in ``dtype``; coordinates are in float32 or better."""
        wide = torch.promote_types(dtype, torch.float32)
        first = cast(nn.Linear, self.network[0])
        hidden = F.linear(unit_coords(pos, self.train_grid, wide), first.weight.to(wide), first.bias.to(wide))
        return hidden.to(dtype)

"""Fourier features of the place: fixed (Tancik et al., NeurIPS 2020) and learnable (Li et al., NeurIPS 2021)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from vitpos.encodings.base import Geometry, PositionEncoding, check_positive
from vitpos.encodings.tables import unit_coords
from vitpos.errors import UserError
from vitpos.positions import Positions


class Fourier(PositionEncoding):
    """Cosines and sines of random projections of the place, added to the tokens as they are or through a network.

    Fixed: γ(v) = [cos 2πBv, sin 2πBv], B normal of deviation ``sigma``, v from −1 to 1 over the training grid; nothing is
    trained. ``learnable``: B is trained, γ is scaled by 1/√F for its F features, and a GELU network of ``hidden`` units
    maps it to the tokens.
    """

    paper = "Tancik et al., NeurIPS 2020; Li et al., NeurIPS 2021"
    traits = ("trained",)

    def __init__(self, geometry: Geometry, *, sigma: float = 1.0, learnable: bool = True, hidden: int = 32):
        super().__init__()
        check_positive("fourier", sigma=sigma, hidden=hidden)
        if geometry.dim % 2:
            raise UserError(f"encoding 'fourier' needs an even width, not {geometry.dim}; change the model's dim")
        if not learnable and hidden != 32:
            raise UserError(
                f"encoding 'fourier' got hidden={hidden} with learnable=False, which has no network; leave it out"
            )
        self.grid = geometry.grid
        directions = torch.randn(2, geometry.dim // 2) * sigma
        self.directions: Tensor
        self.network: nn.Module | None = None
        if learnable:
            self.directions = nn.Parameter(directions)
            self.network = nn.Sequential(nn.Linear(geometry.dim, hidden), nn.GELU(), nn.Linear(hidden, geometry.dim))
        else:
            self.register_buffer("directions", directions)

    def vectors(self, pos: Positions, layer: int, dtype: torch.dtype) -> Tensor | None:
        """Returns the Fourier features of each position: (B|1, N, D)."""
        if layer:
            return None
        angles = 2 * math.pi * unit_coords(pos, self.grid, dtype) @ self.directions.to(dtype)
        features = torch.cat([angles.cos(), angles.sin()], -1)  # (B|1, N, D)
        if self.network is not None:
            features = self.network(features / features.shape[-1] ** 0.5)
        return features

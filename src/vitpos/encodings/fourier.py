"""Fourier features of the position: fixed (Tancik et al., NeurIPS 2020) or learnable (Li et al., NeurIPS 2021)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from vitpos.encodings._table_interpolation import unit_coords
from vitpos.encodings.base import Geometry, PositionEncoding, check_positive
from vitpos.errors import InputError
from vitpos.positions import Positions


class Fourier(PositionEncoding):
    """Adds cosines and sines of random projections of the coordinates, directly or through an MLP.

    Fixed: γ(v) = [cos 2πBv, sin 2πBv] with v = (row, column) from −1 to 1 over the training grid and a matrix B (D/2, 2)
    drawn from a normal distribution. Learnable: B is a parameter, γ is divided by the square root of its width, and a
    GELU MLP maps it to the model width.

    Args:
        sigma: Standard deviation of the projections B.
        learnable: Learns B and adds MLP(γ); by default B is fixed and γ is added.
        hidden_dim: Width of the MLP.
    """

    paper = "Tancik et al., NeurIPS 2020; Li et al., NeurIPS 2021"
    traits = ("learnable",)

    def __init__(self, geometry: Geometry, *, sigma: float = 1.0, learnable: bool = True, hidden_dim: int = 32):
        super().__init__()
        check_positive("fourier", sigma=sigma, hidden_dim=hidden_dim)
        if geometry.dim % 2:
            raise InputError(f"encoding 'fourier' needs an even width, not {geometry.dim}; change the model's dim")
        if not learnable and hidden_dim != 32:
            raise InputError(
                f"encoding 'fourier' got hidden_dim={hidden_dim} with learnable=False, which has no MLP; leave it out"
            )
        self.train_grid = geometry.grid
        directions = torch.randn(2, geometry.dim // 2) * sigma
        self.directions: Tensor
        self.network: nn.Module | None = None
        if learnable:
            self.directions = nn.Parameter(directions)
            self.network = nn.Sequential(
                nn.Linear(geometry.dim, hidden_dim), nn.GELU(), nn.Linear(hidden_dim, geometry.dim)
            )
        else:
            self.register_buffer("directions", directions)

    def vectors(self, pos: Positions, layer: int, dtype: torch.dtype) -> Tensor | None:
        """Returns vectors (B|1, N, D) to add to the patch tokens before the first block: Fourier features."""
        if layer:
            return None
        features = pos.without_autocast(lambda: self._features(pos, dtype))
        if self.network is not None:
            features = self.network(features / features.shape[-1] ** 0.5)
        return features

    def _features(self, pos: Positions, dtype: torch.dtype) -> Tensor:
        """Returns cosines and sines (B|1, N, D) in ``dtype``, with the angles in float32 or better."""
        wide = torch.promote_types(dtype, torch.float32)
        angles = 2 * math.pi * unit_coords(pos, self.train_grid, wide) @ self.directions.to(wide)
        return torch.cat([angles.cos(), angles.sin()], -1).to(dtype)

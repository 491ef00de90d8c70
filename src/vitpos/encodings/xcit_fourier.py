"""Fourier positions of XCiT (El-Nouby et al., NeurIPS 2021)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from vitpos.encodings.base import Geometry, PositionEncoding, check_positive
from vitpos.errors import InputError
from vitpos.positions import Positions


class XCiTFourier(PositionEncoding):
    """Adds a learned linear map of sines and cosines of row and column to the tokens.

    Row and column, counted from 1 and divided by the rows and columns of the training grid, are multiplied by 2π and by
    frequencies ``temperature``^(−t/(h/2)), t = 0 … h/2 − 1, h = ``hidden_dim``. Sines and cosines alternate, rows
    first: 2h features, which a linear layer maps to the model width. At another resolution coordinates are scaled to
    the training grid, whereas XCiT divides by the new numbers of rows and columns.

    Args:
        hidden_dim: Number of features of each axis.
        temperature: Base of the frequencies.
    """

    paper = "El-Nouby et al. (XCiT), NeurIPS 2021"
    traits = ("learnable",)

    def __init__(self, geometry: Geometry, *, hidden_dim: int = 32, temperature: float = 10_000.0):
        super().__init__()
        check_positive("xcit_fourier", hidden_dim=hidden_dim, temperature=temperature)
        if hidden_dim % 2:
            raise InputError(f"encoding 'xcit_fourier' got hidden_dim={hidden_dim}; choose an even number")
        self.train_grid, self.hidden_dim, self.temperature = geometry.grid, hidden_dim, temperature
        self.projection = nn.Linear(2 * hidden_dim, geometry.dim)

    def vectors(self, pos: Positions, layer: int, dtype: torch.dtype) -> Tensor | None:
        """Returns vectors (B|1, N, D) to add to the patch tokens before the first block: a linear map of the features."""
        if layer:
            return None
        return self.projection(self.cached(pos, "features", lambda: self._features(pos, dtype), dtype))

    def _features(self, pos: Positions, dtype: torch.dtype) -> Tensor:
        """Returns sines and cosines (B|1, N, 2·hidden_dim) of row and column, with the angles in float32 or better."""
        coords = pos.coords.to(torch.promote_types(dtype, torch.float32))
        unit = (coords + 1) * 2 * math.pi / coords.new_tensor(self.train_grid)
        steps = torch.arange(self.hidden_dim // 2, device=unit.device, dtype=unit.dtype)
        angles = unit[..., None] * self.temperature ** (-2 * steps / self.hidden_dim)  # (B|1, N, 2, h/2)
        return torch.stack([angles.sin(), angles.cos()], -1).flatten(2).to(dtype)

"""Rotary positions with learned, mixed frequencies (RoPE-Mixed; Heo et al., ECCV 2024)."""

from __future__ import annotations

import math
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn

from vitpos.encodings.base import Geometry, check_positive
from vitpos.encodings.rotary import Rotary, Rotation, head_width, pair_factors, rotate_pairs
from vitpos.positions import Positions


class RopeMixed(Rotary):
    """Every pair of channels turned by its own learned mixture of row and column, per layer and head.

    Angle of pair t = ωx_t·column + ωy_t·row, t = 0 … d/2 − 1. Magnitudes start at base^(−t/(d/4)), once in a random
    direction per head and once at a right angle to it, so that each head starts as a rotated axial RoPE.
    """

    paper = "Heo et al., ECCV 2024"
    traits = ("relative", "trained")

    def __init__(
        self,
        geometry: Geometry,
        *,
        base: float = 10.0,
        prefix: Literal["origin", "content", "place", "centre"] = "origin",
    ):
        super().__init__(geometry, prefix)
        check_positive("rope_mixed", base=base)
        width = head_width("rope_mixed", geometry)
        size = base ** (-torch.arange(width // 4) / (width // 4))  # (d/4,)
        direction = 2 * math.pi * torch.rand(geometry.depth, geometry.heads, 1)
        column = torch.cat([size * direction.cos(), size * (direction + math.pi / 2).cos()], -1)
        row = torch.cat([size * direction.sin(), size * (direction + math.pi / 2).sin()], -1)
        self.mixed = nn.Parameter(torch.stack([row, column], 2))  # (depth, H, 2, d/2), row before column

    def frequencies(self) -> Tensor:
        """What each layer and head learned."""
        return self.mixed.detach().mT

    def rotation(self, pos: Positions, layer: int, dtype: torch.dtype) -> Rotation:
        """Angles of this layer's heads, in float32 or better."""
        coords = self.coords(pos, dtype)
        angles = coords[:, None] @ self.mixed[layer].to(coords.dtype)  # (B|1, H, N, d/2)
        return partial(rotate_pairs, pair_factors(angles, dtype))

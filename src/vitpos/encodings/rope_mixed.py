"""Rotary position embedding with learned, mixed frequencies (RoPE-Mixed; Heo et al., ECCV 2024)."""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor, nn

from vitpos.encodings._rotary import (
    PairFactors,
    PrefixMode,
    Rotary,
    Rotation,
    check_head_dim,
    pair_factors,
    rotate_pairs,
)
from vitpos.encodings.base import Geometry, check_positive
from vitpos.positions import Positions


class RoPEMixed(Rotary):
    """Rotates every pair of channels by its own learned combination of row and column, per layer and head.

    The angle of pair t is ωx_t·column + ωy_t·row, t = 0 … d/2 − 1. Frequencies start with magnitudes base^(−t/(d/4)),
    once along a random direction per head and once at a right angle to it, so that each head starts as a rotated axial
    RoPE.

    Args:
        base: Base of the initial frequencies.
        prefix_mode: How prefix tokens are treated: they act as tokens at the ``origin`` (0, 0), at the ``center`` of
            the training grid, at a ``learned`` position; with ``unrotated``, their scores with patches are the plain
            q·k.
    """

    _name = "rope_mixed"
    paper = "Heo et al., ECCV 2024"
    traits = ("translation_invariant", "learnable")

    def __init__(self, geometry: Geometry, *, base: float = 10.0, prefix_mode: PrefixMode = "origin"):
        super().__init__(geometry, prefix_mode)
        check_positive(self._name, base=base)
        count = check_head_dim(self._name, geometry) // 4
        size = base ** (-torch.arange(count) / count)  # (d/4,)
        direction = 2 * math.pi * torch.rand(geometry.depth, geometry.heads, 1)
        column = torch.cat([size * direction.cos(), size * (direction + math.pi / 2).cos()], -1)
        row = torch.cat([size * direction.sin(), size * (direction + math.pi / 2).sin()], -1)
        self.mixed_frequencies = nn.Parameter(torch.stack([row, column], 2))  # (depth, H, 2, d/2), row before column

    def frequencies(self) -> Tensor:
        """Returns the learned frequencies (depth, H, d/2, 2) of channel pairs, in radians per row and per column."""
        return self.mixed_frequencies.detach().mT

    def rotation(self, pos: Positions, layer: int, dtype: torch.dtype) -> Rotation:
        """Returns a function that rotates q or k (B, H, N, d) at these positions by the frequencies of block ``layer``."""
        return partial(rotate_pairs, pos.without_autocast(lambda: self._factors(pos, layer, dtype)))

    def _factors(self, pos: Positions, layer: int, dtype: torch.dtype) -> PairFactors:
        coords = self.centered_coords(pos, dtype)
        angles = coords[:, None] @ self.mixed_frequencies[layer].to(coords.dtype)  # (B|1, H, N, d/2)
        return pair_factors(angles, dtype)

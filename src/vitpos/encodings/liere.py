"""Lie rotational position encodings (LieRE; Ostmeier et al., ICML 2025)."""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor, nn

from vitpos.encodings._rotary import PrefixMode, Rotary, Rotation, rotate_blocks, skew_matrices
from vitpos.encodings.base import Geometry
from vitpos.errors import InputError
from vitpos.positions import Positions


class LieRE(Rotary):
    """Rotates blocks of channels by R = exp(row·A_row + column·A_column) with learned skew-symmetric matrices A.

    Each layer and head has its own pair of block-diagonal matrices (generators), initialized uniformly in [0, 2π). The
    training grid spans [0, 1] on each axis. With blocks of 2 channels every R is a plane rotation, as in RoPE-Mixed; in
    larger blocks A_row and A_column need not commute, and then q·k depends on more than the offset.

    Args:
        block_size: Number of channels of a block.
        prefix_mode: How prefix tokens are treated: they act as tokens at the ``origin`` (0, 0), at the ``center`` of
            the training grid, at a ``learned`` position; with ``unrotated``, their scores with patches are the plain
            q·k.
    """

    _name = "liere"
    paper = "Ostmeier et al., ICML 2025"
    traits = ("learnable",)

    def __init__(self, geometry: Geometry, *, block_size: int = 8, prefix_mode: PrefixMode = "origin"):
        super().__init__(geometry, prefix_mode)
        head_dim = geometry.dim // geometry.heads
        if block_size < 2 or head_dim % block_size:
            raise InputError(
                f"encoding {self._name!r} got block_size={block_size} for heads of width {head_dim}; "
                "choose 2 or more, a divisor of the width"
            )
        self.block_size = block_size
        entries = block_size * (block_size - 1) // 2
        shape = (geometry.depth, geometry.heads, head_dim // block_size, 2, entries)  # row before column
        self.generators = nn.Parameter(torch.rand(shape) * 2 * math.pi)

    def frequencies(self) -> Tensor | None:
        """Returns the learned frequencies (depth, H, d/2, 2), radians per row and column; None if ``block_size`` > 2."""
        if self.block_size > 2:
            return None
        spans = [max(side - 1, 1) for side in self.geometry.grid]
        generators = self.generators.detach()[..., 0]  # (depth, H, d/2, 2)
        return -generators / generators.new_tensor(spans)

    def rotation(self, pos: Positions, layer: int, dtype: torch.dtype) -> Rotation:
        """Returns a function that rotates q or k (B, H, N, d) at these positions, computed in float32 or better."""
        return partial(rotate_blocks, pos.without_autocast(lambda: self._matrices(pos, layer, dtype)))

    def _matrices(self, pos: Positions, layer: int, dtype: torch.dtype) -> Tensor:
        """Returns the rotations (B|1, H, N, d/b, b, b) of blocks of b channels at these positions, in ``dtype``."""
        coords = self.centered_coords(pos, dtype)
        spans = [max(side - 1, 1) for side in self.geometry.grid]
        unit = coords / coords.new_tensor(spans)  # (B|1, N, 2)
        mixed = torch.einsum("bna,hgae->bhnge", unit, self.generators[layer].to(unit.dtype))
        return torch.linalg.matrix_exp(skew_matrices(mixed, self.block_size)).to(dtype)

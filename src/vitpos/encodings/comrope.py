"""Rotary position embedding with learned commuting matrices (ComRoPE; Yu et al., CVPR 2025)."""

from __future__ import annotations

import math
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn

from vitpos.encodings._rotary import (
    PrefixMode,
    Rotary,
    Rotation,
    pair_factors,
    rotate_blocks,
    rotate_pairs,
    skew_matrices,
)
from vitpos.encodings.base import Geometry
from vitpos.errors import InputError
from vitpos.positions import Positions


class ComRoPE(Rotary):
    """Rotates blocks of channels by R = exp(s_j·A_j) with learned skew-symmetric matrices A_j that commute.

    Block j of a head has one matrix A_j, learned per layer and head, and s_j is a number per position: with
    ``mode="ap"`` (axial partition) the row for even j and the column for odd j, with ``mode="ld"`` (linearly dependent)
    θ[0, j]·row + θ[1, j]·column with learned θ, shared by the heads. Because the exponents of a block at all
    positions are multiples of one matrix, q·k depends on positions only by their offset, unlike in LieRE. The training
    grid spans 1 on each axis.

    As in the published code A_j = P_j − P_jᵀ starts with P and θ from N(0, 1), blocks have 2 channels, and CLS is at
    the center; only the entries of A_j above the diagonal are stored. The published code can also add noise to
    positions in training (off by default); this is not implemented.

    Args:
        mode: How the blocks use row and column: ``ld`` combines them in every block, ``ap`` alternates between them.
        block_size: Number of channels of a block.
        prefix_mode: Where prefix tokens (CLS and registers) are placed: at the ``origin`` (0, 0), at the ``center`` of
            the training grid, or at a ``learned`` position; with ``unrotated``, their logits with patches use q and k
            before rotation.
    """

    _name = "comrope"
    paper = "Yu et al., CVPR 2025"
    traits = ("translation_invariant", "learnable")

    def __init__(
        self,
        geometry: Geometry,
        *,
        mode: Literal["ld", "ap"] = "ld",
        block_size: int = 2,
        prefix_mode: PrefixMode = "center",
    ):
        super().__init__(geometry, prefix_mode)
        head_dim = geometry.dim // geometry.heads
        if block_size < 2 or head_dim % block_size or (mode == "ap" and head_dim // block_size % 2):
            raise InputError(
                f"encoding {self._name!r} got block_size={block_size} for heads of width {head_dim}; "
                f"choose 2 or more, a divisor of {'half of ' if mode == 'ap' else ''}the width"
            )
        self.block_size, self.blocks = block_size, head_dim // block_size
        entries = block_size * (block_size - 1) // 2
        shape = (geometry.depth, geometry.heads, self.blocks, entries)
        self.generators = nn.Parameter(torch.randn(shape) * math.sqrt(2))  # of P − Pᵀ, so that the variance is 2
        self.axis_scales = nn.Parameter(torch.randn(geometry.depth, 2, self.blocks)) if mode == "ld" else None

    def frequencies(self) -> Tensor | None:
        """Returns the learned frequencies (depth, H, d/2, 2), radians per row and column; None if ``block_size`` > 2."""
        if self.block_size > 2:
            return None
        with torch.no_grad():
            scales = torch.stack([self._scales(layer) for layer in range(self.geometry.depth)])  # (depth, 2, d/2)
            sides = scales.new_tensor(self.geometry.grid)[:, None]
            return -self.generators * (scales / sides).mT[:, None]

    def rotation(self, pos: Positions, layer: int, dtype: torch.dtype) -> Rotation:
        """Returns a function that rotates q or k (B, H, N, d) at these positions, computed in float32 or better."""
        return pos.without_autocast(lambda: self._rotation(pos, layer, dtype))

    def _rotation(self, pos: Positions, layer: int, dtype: torch.dtype) -> Rotation:
        coords = self.centered_coords(pos, dtype)
        unit = coords / coords.new_tensor(self.geometry.grid)  # (B|1, N, 2)
        factors = (unit @ self._scales(layer).to(unit.dtype))[:, None, ..., None]  # (B|1, 1, N, blocks, 1)
        exponents = factors * self.generators[layer, :, None].to(unit.dtype)  # (B|1, H, N, blocks, entries)
        if self.block_size == 2:
            return partial(rotate_pairs, pair_factors(-exponents[..., 0], dtype))
        matrices = torch.linalg.matrix_exp(skew_matrices(exponents, self.block_size))
        return partial(rotate_blocks, matrices.to(dtype))  # (B|1, H, N, blocks, b, b)

    def _scales(self, layer: int) -> Tensor:
        """Returns the factors (2, blocks) by which row and column enter the exponent of each block in a layer."""
        if self.axis_scales is not None:
            return self.axis_scales[layer]
        return torch.eye(2, device=self.generators.device).repeat(1, self.blocks // 2)

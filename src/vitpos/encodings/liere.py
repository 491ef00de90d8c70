"""Lie rotational positions (LieRE; Ostmeier et al., ICML 2025)."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn

from vitpos.encodings.base import Geometry
from vitpos.encodings.rotary import Rotary, Rotation
from vitpos.errors import UserError
from vitpos.positions import Positions


class LieRE(Rotary):
    """Blocks of channels turned by the exponential of learned skew matrices: R(p) = exp(row·A_row + column·A_column).

    Generators are block-diagonal with blocks of ``block`` channels, one pair per layer and head, started uniform in
    [0, 2π). The training grid spans [0, 1] on each axis. With block 2 every R is a plane rotation, the family of
    RoPE-Mixed; larger blocks' generators need not commute, and then a product depends on more than the offset.
    """

    paper = "Ostmeier et al., ICML 2025"
    traits = ("trained",)

    def __init__(
        self,
        geometry: Geometry,
        *,
        block: int = 8,
        prefix: Literal["origin", "content", "place", "centre"] = "origin",
    ):
        super().__init__(geometry, prefix)
        width = geometry.dim // geometry.heads
        if block < 2 or width % block:
            raise UserError(
                f"encoding 'liere' cannot cut heads of width {width} into blocks of {block}; "
                "choose a block from 2 that divides it"
            )
        self.block = block
        upper = torch.triu_indices(block, block, 1)
        self.upper: Tensor
        self.register_buffer("upper", upper[0] * block + upper[1], persistent=False)
        entries = upper.shape[1]
        shape = (geometry.depth, geometry.heads, width // block, 2, entries)  # row before column
        self.generators = nn.Parameter(torch.rand(shape) * 2 * math.pi)

    def frequencies(self) -> Tensor | None:
        """What each layer and head learned, with blocks of 2; larger blocks turn in more than planes."""
        if self.block > 2:
            return None
        spans = [max(side - 1, 1) for side in self.geometry.grid]
        generators = self.generators.detach()[..., 0]  # (depth, H, d/2, 2)
        return -generators / generators.new_tensor(spans)

    def rotation(self, pos: Positions, layer: int, dtype: torch.dtype) -> Rotation:
        """Multiplies each block by its rotation, computed in float32 or better."""
        coords = self.coords(pos, dtype)
        spans = [max(side - 1, 1) for side in self.geometry.grid]
        unit = coords / coords.new_tensor(spans)  # (B|1, N, 2)
        mixed = torch.einsum("bna,hgae->bhnge", unit, self.generators[layer].to(unit.dtype))
        flat = mixed.new_zeros(*mixed.shape[:-1], self.block**2).index_copy(-1, self.upper, mixed)
        skew = flat.unflatten(-1, (self.block, self.block))
        rotation = torch.linalg.matrix_exp(skew - skew.mT).to(dtype)  # (B|1, H, N, groups, b, b)

        def turn(x: Tensor) -> Tensor:
            return (rotation @ x.unflatten(-1, (-1, self.block))[..., None]).flatten(-3)

        return turn

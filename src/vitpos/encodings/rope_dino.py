"""DINOv3's rotary positions (Siméoni et al., 2025): unit coordinates, moved about in training."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from vitpos.encodings.base import Geometry
from vitpos.encodings.rotary import Rotary, Turn, head_width, turn_pairs
from vitpos.errors import UserError
from vitpos.positions import Positions


class RopeDino(Rotary):
    """Axial rotary positions on coordinates from −1 to 1, which training may shift, jitter and rescale.

    Periods base^(t/(d/4)), angle = 2π·coordinate/period, rows first. Pairs are neighbouring channels here, where the
    release pairs channel t with t + d/2: the same function after a fixed reordering of the rows of W_q and W_k. In
    training every pass draws anew: ``shift`` adds up to ±shift to each axis, ``jitter`` and ``rescale`` multiply each
    axis, or both together, by a factor between 1/x and x, uniform in its logarithm.
    """

    source = "Siméoni et al. (DINOv3), arXiv 2025"
    traits = ("relative",)

    def __init__(
        self,
        geometry: Geometry,
        *,
        base: float = 100.0,
        shift: float = 0.0,
        jitter: float = 1.0,
        rescale: float = 2.0,
        prefix: Literal["origin", "content", "place", "centre"] = "centre",
    ):
        super().__init__(geometry, prefix)
        width = head_width("rope_dino", geometry)
        if shift < 0 or jitter < 1 or rescale < 1:
            raise UserError(
                f"encoding 'rope_dino' got shift={shift}, jitter={jitter}, rescale={rescale}; "
                "take a shift from 0 and factors from 1"
            )
        self.width, self.base = width, base
        self.shift, self.jitter, self.rescale = shift, jitter, rescale

    def arrange(self, x: Tensor, pos: Positions) -> tuple[Tensor, Positions]:
        """In training, the places as this pass draws them: one draw for all layers."""
        if not self.training or (self.shift == 0 and self.jitter == self.rescale == 1):
            return x, pos
        draw = torch.rand(5, device=pos.coords.device) * 2 - 1
        half = pos.coords.new_tensor(self.geometry.grid) / 2
        factor = torch.exp(draw[:2] * math.log(self.jitter) + draw[2] * math.log(self.rescale))
        unit = ((pos.coords + 0.5) / half - 1 + self.shift * draw[3:]) * factor
        return x, pos.placed((unit + 1) * half - 0.5)

    def turn(self, pos: Positions, layer: int, dtype: torch.dtype) -> Turn:
        """One table of angles for all layers and heads."""
        key = ("rope_dino", self.width, self.base, tuple(self.middle), self.geometry.grid, dtype)
        return pos.table(key, lambda: self._turn(pos, dtype)) if self.place is None else self._turn(pos, dtype)

    def _turn(self, pos: Positions, dtype: torch.dtype) -> Turn:
        coords = self.coords(pos, dtype)
        unit = coords * 2 / coords.new_tensor(self.geometry.grid)
        count = self.width // 4
        steps = torch.arange(count, device=coords.device, dtype=coords.dtype)
        angles = 2 * math.pi * unit[..., None] * self.base ** (-steps / count)  # (B|1, N, 2, d/4)
        return turn_pairs(angles.flatten(2)[:, None], dtype)

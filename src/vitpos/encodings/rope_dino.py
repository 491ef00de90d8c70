"""DINOv3's rotary positions (Siméoni et al., 2025): unit coordinates, moved about in training."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from vitpos.encodings.base import Geometry, check_positive
from vitpos.encodings.rotary import Rotary, Rotation, head_width, pair_factors, rotate_pairs
from vitpos.errors import UserError
from vitpos.positions import Positions


class RopeDino(Rotary):
    """Axial rotary positions on coordinates from −1 to 1, which training may shift, jitter and rescale.

    Periods base^(t/(d/4)), angle = 2π·coordinate/period, rows first. Pairs are neighbouring channels here, where the
    release pairs channel t with t + d/2: the same function after a fixed reordering of the rows of W_q and W_k. In
    training every pass draws anew: ``shift`` adds up to ±shift to each axis, ``jitter`` and ``rescale`` multiply each
    axis, or both together, by a factor between 1/x and x, uniform in its logarithm.
    """

    paper = "Siméoni et al. (DINOv3), arXiv 2025"
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
        check_positive("rope_dino", base=base)
        width = head_width("rope_dino", geometry)
        if shift < 0 or jitter < 1 or rescale < 1:
            raise UserError(
                f"encoding 'rope_dino' got shift={shift}, jitter={jitter}, rescale={rescale}; "
                "take a shift from 0 and factors from 1"
            )
        self.width, self.base = width, base
        self.shift, self.jitter, self.rescale = shift, jitter, rescale

    def augment(self, x: Tensor, pos: Positions) -> tuple[Tensor, Positions]:
        """In training, the same places with tables of this pass alone, so that its one draw serves all layers."""
        return x, replace(pos) if self._drawing else pos

    @property
    def _drawing(self) -> bool:
        return self.training and not (self.shift == 0 and self.jitter == self.rescale == 1)

    def frequencies(self) -> Tensor:
        """Rows alone, then columns alone, the same in all layers and heads; patches are those of the training grid."""
        size = 2 * math.pi * self.base ** (-torch.arange(self.width // 4) / (self.width // 4))
        return frequencies_on_grid(size, self.geometry.grid).expand(self.geometry.depth, self.geometry.heads, -1, -1)

    def rotation(self, pos: Positions, layer: int, dtype: torch.dtype) -> Rotation:
        """One table of angles for all layers and heads."""
        make = partial(self._factors, pos, dtype)
        name = "sampled factors" if self._drawing else "factors"
        return partial(rotate_pairs, self.cached(pos, name, make, dtype) if self.place is None else make())

    def _factors(self, pos: Positions, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        unit = self.coords(pos, dtype) * 2 / pos.coords.new_tensor(self.geometry.grid)
        if self._drawing:
            draw = self.cached(pos, "draw", lambda: torch.rand(5, device=unit.device) * 2 - 1)
            unit = unit + self.shift * draw[3:]
            unit = unit * torch.exp(draw[:2] * math.log(self.jitter) + draw[2] * math.log(self.rescale))
        count = self.width // 4
        steps = torch.arange(count, device=unit.device, dtype=unit.dtype)
        angles = 2 * math.pi * unit[..., None] * self.base ** (-steps / count)  # (B|1, N, 2, d/4)
        return pair_factors(angles.flatten(2)[:, None], dtype)


def frequencies_on_grid(size: Tensor, grid: tuple[int, int]) -> Tensor:
    """(2·d/4, 2): radians per row and per column of frequencies (d/4,) of coordinates from −1 to 1; rows alone first."""
    still = torch.zeros_like(size)
    rows, columns = (2 / side * size for side in grid)
    return torch.stack([torch.cat([rows, still]), torch.cat([still, columns])], -1)

"""Axial rotary positions (Heo et al., ECCV 2024), after RoFormer (Su et al., 2021)."""

from __future__ import annotations

from copy import deepcopy
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from vitpos.encodings.base import Geometry, check_positive
from vitpos.encodings.rotary import Rotary, Rotation, head_width, pair_factors, rotate_pairs
from vitpos.errors import UserError
from vitpos.positions import Positions


class Rope(Rotary):
    """Half of each head's channels turned by the column of the token, half by its row; nothing is trained.

    Frequencies ω_t = base^(−t/(d/4)), t = 0 … d/4 − 1; channels (2t, 2t + 1) form pair t, the first d/4 pairs turn by
    column·ω_t, the last by row·ω_t, as in the release. A larger grid goes beyond the trained angles, or is fitted into
    the trained span (position interpolation) by the coordinates given; ``ntk`` = s instead stretches the base to
    base·s^(d/(d − 4)), which leaves the fastest pair as it is and slows the slowest down s-fold.
    """

    paper = "Su et al., 2021; Heo et al., ECCV 2024"
    traits = ("relative",)

    def __init__(
        self,
        geometry: Geometry,
        *,
        base: float = 100.0,
        ntk: float = 1.0,
        prefix: Literal["origin", "content", "place", "centre"] = "origin",
    ):
        super().__init__(geometry, prefix)
        width = head_width("rope", geometry)
        check_positive("rope", base=base, ntk=ntk)
        if width == 4 and ntk != 1:
            raise UserError(f"encoding 'rope' got ntk={ntk} for heads of width 4, which turn at one pace; leave it out")
        self.width, self.base = width, base * _stretch(width, ntk)

    def ntk_scaled(self, factor: float) -> Rope:
        """The same with its base stretched, as ``ntk`` does."""
        new = deepcopy(self)
        new.base = self.base * _stretch(self.width, max(factor, 1.0))
        return new

    def frequencies(self) -> Tensor:
        """Columns alone, then rows alone, the same in all layers and heads."""
        size = self.base ** (-torch.arange(self.width // 4) / (self.width // 4))
        still = torch.zeros_like(size)
        both = torch.stack([torch.cat([still, size]), torch.cat([size, still])], -1)
        return both.expand(self.geometry.depth, self.geometry.heads, -1, -1)

    def rotation(self, pos: Positions, layer: int, dtype: torch.dtype) -> Rotation:
        """One table of angles for all layers and heads."""
        make = partial(self._factors, pos, dtype)
        return partial(rotate_pairs, self.cached(pos, "factors", make, dtype) if self.place is None else make())

    def _factors(self, pos: Positions, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        coords = self.coords(pos, dtype).flip(-1)  # column before row
        count = self.width // 4
        steps = torch.arange(count, device=coords.device, dtype=coords.dtype)
        angles = coords[..., None] * self.base ** (-steps / count)  # (B|1, N, 2, d/4)
        return pair_factors(angles.flatten(2)[:, None], dtype)


def _stretch(width: int, ntk: float) -> float:
    return ntk ** (width / (width - 4)) if width > 4 else 1.0

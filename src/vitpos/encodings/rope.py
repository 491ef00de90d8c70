"""Axial rotary position embedding (RoPE-Axial; Heo et al., ECCV 2024), after RoFormer (Su et al., 2021)."""

from __future__ import annotations

from copy import deepcopy
from functools import partial

import torch
from torch import Tensor

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
from vitpos.errors import InputError
from vitpos.positions import Positions


class RoPE(Rotary):
    """Rotates half of each head's channels by the column of the token and half by its row; nothing is learned.

    Frequencies ω_t = base^(−t/(d/4)), t = 0 … d/4 − 1. Channels (2t, 2t + 1) form pair t; the first d/4 pairs rotate by
    column·ω_t, the last by row·ω_t, as in the published code. A larger grid extrapolates the angles, or interpolates them
    if its coordinates are scaled to the training grid.

    Args:
        base: Base of the frequencies.
        ntk_factor: Scales the base to base·s^(d/(d − 4)) for a grid s times as large (NTK), which leaves the highest
            frequency unchanged and divides the lowest by s.
        prefix_mode: How prefix tokens are treated: they act as tokens at the ``origin`` (0, 0), at the ``center`` of the
            training grid, at a ``learned`` position, or pairs with them stay ``unrotated``.
    """

    paper = "Su et al., 2021; Heo et al., ECCV 2024"
    traits = ("translation_invariant",)

    def __init__(
        self, geometry: Geometry, *, base: float = 100.0, ntk_factor: float = 1.0, prefix_mode: PrefixMode = "origin"
    ):
        super().__init__(geometry, prefix_mode)
        self.head_dim = check_head_dim("rope", geometry)
        check_positive("rope", base=base, ntk_factor=ntk_factor)
        if self.head_dim == 4 and ntk_factor != 1:
            raise InputError(
                f"encoding 'rope' got ntk_factor={ntk_factor} for heads of width 4, which have one frequency; leave it out"
            )
        self.base = base * _ntk_scale(self.head_dim, ntk_factor)

    def ntk_scaled(self, factor: float) -> RoPE:
        """Returns a copy with its base scaled as by ``ntk_factor``."""
        new = deepcopy(self)
        new.base = self.base * _ntk_scale(self.head_dim, max(factor, 1.0))
        return new

    def frequencies(self) -> Tensor:
        """Returns (depth, H, d/2, 2): columns only, then rows only, the same in all layers and heads."""
        count = self.head_dim // 4
        values = self.base ** (-torch.arange(count) / count)
        zeros = torch.zeros_like(values)
        both = torch.stack([torch.cat([zeros, values]), torch.cat([values, zeros])], -1)
        return both.expand(self.geometry.depth, self.geometry.heads, -1, -1)

    def rotation(self, pos: Positions, layer: int, dtype: torch.dtype) -> Rotation:
        """Returns the rotation at these positions, the same in all layers and heads."""
        make = partial(self._factors, pos, dtype)
        factors = self.cached(pos, "factors", make, dtype) if self.learned_origin is None else make()
        return partial(rotate_pairs, factors)

    def _factors(self, pos: Positions, dtype: torch.dtype) -> PairFactors:
        coords = self.centered_coords(pos, dtype).flip(-1)  # column before row
        count = self.head_dim // 4
        steps = torch.arange(count, device=coords.device, dtype=coords.dtype)
        angles = coords[..., None] * self.base ** (-steps / count)  # (B|1, N, 2, d/4)
        return pair_factors(angles.flatten(2)[:, None], dtype)


def _ntk_scale(head_dim: int, factor: float) -> float:
    return factor ** (head_dim / (head_dim - 4)) if head_dim > 4 else 1.0

"""Rotary position embedding in three dimensions (Spherical RoPE; van de Geijn et al., 2025)."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from vitpos.encodings._rotary import PairFactors, PrefixMode, Rotary, Rotation, rotate_pairs
from vitpos.encodings.base import Geometry, check_positive
from vitpos.errors import InputError
from vitpos.positions import Positions


class RoPESpherical(Rotary):
    """Rotates triples of channels on a sphere: about the first axis by the row, then about the third by the column.

    Channels (3t, 3t + 1, 3t + 2) are multiplied by R_z(ω_t·column)·R_x(ω_t·row), ω_t = base^(−2t/d), t = 0 … ⌊d/3⌋ − 1;
    nothing is learned. The two rotations do not commute, so that logits depend on more than the offset: the paper asks
    whether the invariance of RoPE matters. No code of the authors was found. If 3 does not divide d, the remaining
    channels are not rotated; the paper does not say how it treats them.

    Args:
        base: Base of the frequencies.
        prefix_mode: Where prefix tokens (CLS and registers) are placed: at the ``origin`` (0, 0), at the ``center`` of
            the training grid, or at a ``learned`` position; with ``unrotated``, their logits with patches use q and k
            before rotation. Moving the origin of the coordinates also changes the logits of pairs of patches, because
            the rotations do not commute.
    """

    _name = "rope_spherical"
    paper = "van de Geijn et al., arXiv 2025"

    def __init__(self, geometry: Geometry, *, base: float = 100.0, prefix_mode: PrefixMode = "origin"):
        super().__init__(geometry, prefix_mode)
        check_positive(self._name, base=base)
        self.base, self.head_dim = base, geometry.dim // geometry.heads
        if self.head_dim < 3:
            raise InputError(
                f"encoding {self._name!r} needs heads of 3 channels or more, not {self.head_dim}; change dim or heads"
            )

    def rotation(self, pos: Positions, layer: int, dtype: torch.dtype) -> Rotation:
        """Returns a function that rotates q or k (B, H, N, d) at these positions, the same in all layers and heads."""
        make = partial(self._factors, pos, dtype)
        by_row, by_column = self.cached_table(pos, "factors", make, dtype)
        return lambda x: rotate_pairs(by_column, rotate_pairs(by_row, x))

    def _factors(self, pos: Positions, dtype: torch.dtype) -> tuple[PairFactors, PairFactors]:
        coords = self.centered_coords(pos, dtype)
        steps = torch.arange(self.head_dim // 3, device=coords.device, dtype=coords.dtype)
        angles = coords[..., None] * self.base ** (-2 * steps / self.head_dim)  # (B|1, N, 2, triples)
        row, column = angles[:, None].unbind(3)
        return self._triples(row, 1, dtype), self._triples(column, 0, dtype)

    def _triples(self, angles: Tensor, first: int, dtype: torch.dtype) -> PairFactors:
        """Returns (cos, after, before), each (B|1, 1, N, d): factors that rotate two channels of each triple by ``angles``.

        Channel c of the rotated x is cos_c·x_c + after_c·x_(c+1) + before_c·x_(c−1). The two channels are ``first`` (0
        or 1) and ``first + 1`` of the triple; its third channel is not changed. ``angles`` (B|1, 1, N, ⌊d/3⌋) are in
        radians.
        """
        cos, sin = angles.cos().to(dtype), angles.sin().to(dtype)
        zero, one = torch.zeros_like(sin), torch.ones_like(cos)

        def channels(triple: tuple[Tensor, ...], fill: float) -> Tensor:
            values = torch.stack(triple[-first:] + triple[:-first], -1).flatten(-2)
            return F.pad(values, (0, self.head_dim - values.shape[-1]), value=fill)

        # the factor of a channel itself, of the next and of the previous one
        return channels((cos, cos, one), 1), channels((-sin, zero, zero), 0), channels((zero, sin, zero), 0)

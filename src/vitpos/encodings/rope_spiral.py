"""Rotary position embedding along several directions (Spiral RoPE; Liu et al., 2026)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from vitpos.encodings._rotary import FixedFrequencies, PrefixMode
from vitpos.encodings.base import Geometry, check_positive
from vitpos.errors import InputError


class RoPESpiral(FixedFrequencies):
    """Rotates groups of channels by the projection of the position on one of K evenly spaced directions.

    The first half of the pairs uses directions at angles φ = i·180°/K from the row axis, i = 0 … K/2 − 1, projection
    row·cos φ + column·sin φ; the second half those at right angles to them, column·cos φ − row·sin φ. Both halves have
    frequencies ω_t = max_frequency·base^(−t/(d/4)), t = 0 … d/4 − 1, and their pairs cycle through the K/2 directions, two
    consecutive pairs (one if 4K does not divide d) sharing each direction. K = 2 is axial RoPE with rows first.

    Constants and order of channels are those of the published code. That code rotates a table of the angles like an
    image, with bilinear interpolation about the center of a square grid and border values outside: it agrees with the
    projections inside the circle that fits into the grid, but not in the corners, and is not shift-invariant. Here the
    projections are exact, as in the paper.

    Args:
        directions: Number K of directions, an even number; 2K must divide the head width.
        base: Base of the frequencies.
        max_frequency: Highest frequency, in radians per patch.
        prefix_mode: Where prefix tokens (CLS and registers) are placed: at the ``origin`` (0, 0), at the ``center`` of
            the training grid, or at a ``learned`` position; with ``unrotated``, their logits with patches use q and k
            before rotation.
    """

    _name = "rope_spiral"
    paper = "Liu et al., arXiv 2026"
    traits = ("translation_invariant",)

    def __init__(
        self,
        geometry: Geometry,
        *,
        directions: int = 4,
        base: float = 10000.0,
        max_frequency: float = 1.5,
        prefix_mode: PrefixMode = "origin",
    ):
        super().__init__(geometry, prefix_mode)
        check_positive(self._name, base=base, max_frequency=max_frequency)
        head_dim = geometry.dim // geometry.heads
        if directions < 2 or directions % 2 or head_dim % (2 * directions):
            raise InputError(
                f"encoding {self._name!r} got directions={directions} for heads of width {head_dim}; "
                "choose an even number that divides half of the width"
            )
        self.head_dim, self.directions, self.base, self.max_frequency = head_dim, directions, base, max_frequency

    def pair_frequencies(self) -> Tensor:
        """Returns the frequencies (1, d/2, 2) of channel pairs in radians per row and column: direction times frequency."""
        count = self.head_dim // 4
        steps = torch.arange(count, dtype=torch.float64)
        sizes = self.max_frequency * self.base ** (-steps / count)  # (d/4,)
        shared = 2 if count % self.directions == 0 else 1  # neighboring frequencies along one direction
        angles = steps.div(shared, rounding_mode="floor") % (self.directions // 2) * math.pi / self.directions
        cos, sin = sizes * angles.cos(), sizes * angles.sin()
        return torch.cat([torch.stack([cos, sin], -1), torch.stack([-sin, cos], -1)])[None]

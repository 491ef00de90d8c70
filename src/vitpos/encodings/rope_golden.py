"""Golden-gate rotary position embedding (Xiong, "On N-dimensional Rotary Positional Embeddings", 2025)."""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

import torch
from torch import Tensor

from vitpos.encodings._rotary import FixedFrequencies, PrefixMode, check_head_dim
from vitpos.encodings.base import Geometry, check_positive
from vitpos.errors import InputError


class RoPEGolden(FixedFrequencies):
    """Rotates each pair of channels by the position along its own direction; the directions cover the circle evenly.

    The angle of pair t of head h is ω_t·(u·(row, column)), u the direction with index i = h·d/2 + t + 1: the unit
    vector along (Φ⁻¹(frac(i/g)), Φ⁻¹(frac(i/g²))), where Φ⁻¹ is the quantile function of the normal distribution and g
    ≈ 1.3247 solves g³ = g + 1. Frequencies ω_t run from ``min_frequency`` to ``max_frequency`` in equal ratios, in
    radians per patch, the same in all heads and layers; nothing is learned.

    vit-pytorch pairs channel t with t + d/2: the same function after a fixed permutation of the rows of W_q and W_k.
    Its default frequencies, 1 to 10,000 radians per patch, alias to lower ones at integer coordinates; the defaults
    here are roughly the range of ``rope(base=100.0)``.

    Args:
        min_frequency: Lowest frequency, in radians per patch.
        max_frequency: Highest frequency, in radians per patch.
        zero_fraction: Fraction of the pairs, the first of each head, that are not rotated.
        prefix_mode: Where prefix tokens (CLS and registers) are placed: at the ``origin`` (0, 0), at the ``center`` of
            the training grid, or at a ``learned`` position; with ``unrotated``, their logits with patches use q and k
            before rotation.
    """

    _name = "rope_golden"
    paper = "Xiong, 2025 (jerryxio.ng/posts/nd-rope)"
    traits = ("translation_invariant",)

    def __init__(
        self,
        geometry: Geometry,
        *,
        min_frequency: float = 0.01,
        max_frequency: float = 1.0,
        zero_fraction: float = 0.0,
        prefix_mode: PrefixMode = "origin",
    ):
        super().__init__(geometry, prefix_mode)
        check_positive(self._name, min_frequency=min_frequency, max_frequency=max_frequency)
        self.pairs = check_head_dim(self._name, geometry) // 2
        if not 0 <= zero_fraction < 1:
            raise InputError(f"encoding {self._name!r} got zero_fraction={zero_fraction}; choose from 0 to below 1")
        self.min_frequency, self.max_frequency = min_frequency, max_frequency
        self.zero_pairs = round(zero_fraction * self.pairs)

    def pair_frequencies(self) -> Tensor:
        """Returns the frequencies (H, d/2, 2) of channel pairs in radians per row and column: direction times frequency."""
        directions = torch.tensor(_directions(self.geometry.heads * self.pairs), dtype=torch.float64)
        steps = torch.linspace(0, 1, self.pairs - self.zero_pairs, dtype=torch.float64)
        sizes = self.min_frequency * (self.max_frequency / self.min_frequency) ** steps
        sizes = torch.cat([sizes.new_zeros(self.zero_pairs), sizes])
        return directions.view(-1, self.pairs, 2) * sizes[:, None]


@lru_cache(maxsize=16)
def _computed_directions(count: int) -> list[list[float]]:
    ratio = 2.0
    for _ in range(10):  # as vit-pytorch; the distance to the limit is below 1e-6
        ratio = (1 + ratio) ** (1 / 3)
    quantile = NormalDist().inv_cdf
    points = [[quantile(index / ratio**axis % 1) for axis in (1, 2)] for index in range(1, count + 1)]
    return [[x / math.hypot(x, y), y / math.hypot(x, y)] for x, y in points]


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]  # it cannot trace the normal distribution
def _directions(count: int) -> list[list[float]]:
    """Returns ``count`` unit vectors that cover the circle evenly, from the quasi-random sequence of the plastic ratio."""
    return _computed_directions(count)

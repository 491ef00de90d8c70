"""Image relative position encoding (iRPE; Wu et al., ICCV 2021), product method."""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitpos.encodings.base import Geometry, PositionEncoding
from vitpos.errors import InputError
from vitpos.positions import Positions


class IRPE(PositionEncoding):
    """Sorts offsets into buckets, fine near zero and coarse far away, and learns a vector or a number per bucket.

    f(x) = x up to α, then sign(x)·min(β, round(α + (β − α)·ln(|x|/α)/ln(γ/α))), truncated to an integer, with
    (α, β, γ) = ``ratio``·(1, 2, 8). At 1.9 it runs from −3 to 3 on each axis: 49 buckets, and one more for every pair
    with a prefix token. Tables start at zero.

    Args:
        mode: ``contextual`` adds the scaled q times the bucket's vector, shared by heads; ``bias`` a number per head.
        ratio: Scale of the buckets.
    """

    paper = "Wu et al., ICCV 2021"
    traits = ("translation_invariant", "learnable", "biases_prefix")

    def __init__(
        self,
        geometry: Geometry,
        *,
        mode: Literal["contextual", "bias"] = "contextual",
        ratio: float = 1.9,
    ):
        super().__init__()
        if ratio < 0.5:
            raise InputError(f"encoding 'irpe' got ratio={ratio}, which leaves one bucket; choose 0.5 or more")
        self.ratio = ratio
        self.max_bucket = int(2 * ratio)  # on one axis
        buckets = (2 * self.max_bucket + 1) ** 2 + 1
        head_dim = geometry.dim // geometry.heads
        self.contextual = mode == "contextual"
        shape = (buckets, head_dim) if self.contextual else (geometry.heads, buckets)
        self.table = nn.Parameter(torch.zeros(geometry.depth, *shape))

    def bias(self, q: Tensor, k: Tensor, pos: Positions, layer: int) -> Tensor:
        """Returns (B|1, H, T, T)."""
        prefix = q.shape[2] - pos.index.shape[1]
        name = f"buckets with {prefix} prefix tokens"
        index = self.cached(pos, name, lambda: self._buckets(pos, prefix))  # (B|1, 1, T, T)
        table = self.table[layer]
        if self.contextual:
            values = (q * q.shape[-1] ** -0.5) @ table.mT  # (B, H, T, buckets)
            return values.gather(3, index.expand(len(q), q.shape[1], -1, -1))
        return table[:, index[:, 0]].transpose(0, 1)

    def _buckets(self, pos: Positions, prefix: int) -> Tensor:
        rows, columns = (self._bucket(pos.offsets()[..., axis]) + self.max_bucket for axis in (0, 1))
        index = rows * (2 * self.max_bucket + 1) + columns
        last = (2 * self.max_bucket + 1) ** 2
        return F.pad(index, (prefix, 0, prefix, 0), value=last)[:, None]

    def _bucket(self, offset: Tensor) -> Tensor:
        alpha, beta, gamma = (self.ratio * factor for factor in (1, 2, 8))
        size = offset.abs().clamp_min(1e-6)
        far = (alpha + (beta - alpha) * (size / alpha).log() / math.log(gamma / alpha)).round().clamp_max(beta)
        return torch.where(offset.abs() <= alpha, offset.round(), offset.sign() * far).long()

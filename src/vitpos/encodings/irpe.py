"""Image relative position encoding (iRPE; Wu et al., ICCV 2021), product method."""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitpos.encodings.base import Geometry, PositionEncoding
from vitpos.errors import UserError
from vitpos.positions import Positions


class IRPE(PositionEncoding):
    """Offsets put into 7×7 buckets, fine near zero and coarse far away; a trained vector or number per bucket.

    f(x) = x up to α, then sign(x)·min(β, round(α + (β − α)·ln(|x|/α)/ln(γ/α))), cut to a whole number, with
    (α, β, γ) = ``ratio``·(1, 2, 8): at 1.9 from −3 to 3 on each axis, 49 buckets, and one more for every pair with a
    prefix token. ``contextual``: the scaled q times the bucket's vector (shared by heads); ``bias``: a number per head.
    Tables start at zero.
    """

    paper = "Wu et al., ICCV 2021"
    traits = ("relative", "trained", "prefix")

    def __init__(
        self,
        geometry: Geometry,
        *,
        mode: Literal["contextual", "bias"] = "contextual",
        ratio: float = 1.9,
    ):
        super().__init__()
        if ratio < 0.5:
            raise UserError(f"encoding 'irpe' got ratio={ratio}, which leaves one bucket; choose 0.5 or more")
        self.ratio = ratio
        self.reach = int(2 * ratio)  # the largest bucket on an axis
        buckets = (2 * self.reach + 1) ** 2 + 1
        width = geometry.dim // geometry.heads
        shape = (geometry.depth, buckets, width) if mode == "contextual" else (geometry.depth, geometry.heads, buckets)
        self.table = nn.Parameter(torch.zeros(shape))
        self.contextual = mode == "contextual"

    def bias(self, q: Tensor, k: Tensor, pos: Positions, layer: int) -> Tensor:
        """(B|1, H, T, T)."""
        prefix = q.shape[2] - pos.cells.shape[1]
        index = self.cached(
            pos, f"buckets with {prefix} prefix tokens", lambda: self._buckets(pos, prefix)
        )  # (B|1, 1, T, T)
        table = self.table[layer]
        if self.contextual:
            values = (q * q.shape[-1] ** -0.5) @ table.mT  # (B, H, T, buckets)
            return values.gather(3, index.expand(len(q), q.shape[1], -1, -1))
        return table[:, index[:, 0]].transpose(0, 1)

    def _buckets(self, pos: Positions, prefix: int) -> Tensor:
        rows, columns = (self._bucket(pos.offsets()[..., axis]) + self.reach for axis in (0, 1))
        index = rows * (2 * self.reach + 1) + columns
        last = (2 * self.reach + 1) ** 2
        return F.pad(index, (prefix, 0, prefix, 0), value=last)[:, None]

    def _bucket(self, offset: Tensor) -> Tensor:
        near, top, far = (self.ratio * factor for factor in (1, 2, 8))
        size = offset.abs().clamp_min(1e-6)
        beyond = (near + (top - near) * (size / near).log() / math.log(far / near)).round().clamp_max(top)
        return torch.where(offset.abs() <= near, offset.round(), offset.sign() * beyond).long()

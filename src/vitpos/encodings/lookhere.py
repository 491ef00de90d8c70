"""Attention heads that look one way (LookHere; Fuller et al., NeurIPS 2024)."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from vitpos.encodings.base import Geometry, PositionEncoding
from vitpos.positions import Positions


class LookHere(PositionEncoding):
    """Some heads see only what lies in one direction, all see less of what is far; nothing is trained.

    Inside its field of view head h of layer l gets −λ_l·m_h·distance, outside −∞; a patch always sees itself. λ falls
    evenly over depth from 1.5 to .5. Two thirds of the heads (rounded up; 8 of 16) are directed, cycling through the
    views of ``view`` degrees: four half-planes, the four quadrants between them, or the eight eighths from an axis to a
    diagonal; the slopes are 2^−1, 2^−2, …, one value for each time round (for each eight heads at 45 degrees, else four).
    The rest see everything, with slopes 4^−1, 4^−2, 4^−3, 4^−4 and then these again. The release knows 6, 12 and 16
    heads, and this gives its counts (4 + 2, 8 + 4, 8 + 8).
    """

    paper = "Fuller et al., NeurIPS 2024"
    traits = ("relative",)

    def __init__(self, geometry: Geometry, *, view: Literal[180, 90, 45] = 90):
        super().__init__()
        self.heads, self.depth, self.view = geometry.heads, geometry.depth, view

    def bias(self, q: Tensor, k: Tensor, pos: Positions, layer: int) -> Tensor:
        """(B|1, H, N, N)."""
        decay = 1.5 - layer / max(self.depth - 1, 1)
        return (self.cached(pos, "fields", lambda: self._fields(pos)) * decay).to(q.dtype)

    def _fields(self, pos: Positions) -> Tensor:
        """Returns −m_h·distance (B|1, H, N, N) inside the field of view of each head, −∞ outside."""
        offsets = -pos.offsets()  # from the query's place to the key's
        distance = offsets.norm(dim=-1)
        directed = 8 if self.heads == 16 else math.ceil(2 * self.heads / 3)
        views = 8 if self.view == 45 else 4
        fields = []
        for head in range(self.heads):
            if head < directed:
                slope, visible = 2.0 ** -(head // views + 1), self._sees(offsets, distance, head % views / views)
            else:
                slope, visible = 4.0 ** -((head - directed) % 4 + 1), torch.ones_like(distance, dtype=torch.bool)
            fields.append(torch.where(visible, -slope * distance, -math.inf))
        return torch.stack(fields, 1)

    def _sees(self, offsets: Tensor, distance: Tensor, turn: float) -> Tensor:
        """Whether an offset lies within half a view of a direction, a share of a full turn; oneself always does."""
        towards = 2 * math.pi * turn + (0 if self.view == 180 else math.radians(self.view / 2))
        along = offsets[..., 1] * math.cos(towards) + offsets[..., 0] * math.sin(towards)
        return along >= distance * math.cos(math.radians(self.view / 2)) - 1e-4

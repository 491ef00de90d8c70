"""Attention heads with a direction and a field of view (LookHere; Fuller et al., NeurIPS 2024)."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from vitpos.encodings.base import Geometry, PositionEncoding
from vitpos.positions import Positions


class LookHere(PositionEncoding):
    """Restricts some heads to patches in one direction and subtracts a distance penalty in all heads; nothing is learned.

    Inside its field of view, head h of layer l gets −λ_l·m_h·distance, outside −∞; a patch always attends to itself. λ
    falls linearly over depth from 1.5 to 0.5. Two thirds of the heads (rounded up; 8 of 16) have a direction and cycle
    through four half-planes (180°), four quadrants (90°) or eight octants (45°); their slopes m are 2^−1, 2^−2, …, one
    value per cycle. The other heads attend everywhere, with slopes 4^−1 to 4^−4, repeated. For 6, 12 and 16 heads this
    gives the same numbers of heads with and without a direction as the published code (4 + 2, 8 + 4, 8 + 8).

    Args:
        field_of_view: Angle in degrees that a head with a direction sees.
    """

    paper = "Fuller et al., NeurIPS 2024"
    traits = ("translation_invariant",)

    def __init__(self, geometry: Geometry, *, field_of_view: Literal[180, 90, 45] = 90):
        super().__init__()
        self.heads, self.depth, self.field_of_view = geometry.heads, geometry.depth, field_of_view

    def bias(self, q: Tensor, k: Tensor, pos: Positions, layer: int) -> Tensor:
        """Returns the bias (B|1, H, N, N) that is added to the attention logits of patches in block number ``layer``."""
        decay = 1.5 - layer / max(self.depth - 1, 1)
        return (self.cached(pos, "bias", lambda: self._bias(pos)) * decay).to(q.dtype)

    def _bias(self, pos: Positions) -> Tensor:
        """Returns the bias (B|1, H, N, N) of pairs of patches, before multiplication by the factor of the layer.

        It is −slope·distance if the key is in the head's field of view around the query, otherwise −∞. Slope and field
        of view are fixed and depend on the head; the distance is in patches.
        """
        offsets = -pos.offsets()  # from the query's position to the key's
        distance = offsets.norm(dim=-1)
        directed = 8 if self.heads == 16 else math.ceil(2 * self.heads / 3)
        directions = 8 if self.field_of_view == 45 else 4
        heads = []
        for head in range(self.heads):
            if head < directed:
                slope = 2.0 ** -(head // directions + 1)
                visible = self._visible(offsets, distance, head % directions / directions)
            else:
                slope, visible = 4.0 ** -((head - directed) % 4 + 1), torch.ones_like(distance, dtype=torch.bool)
            heads.append(torch.where(visible, -slope * distance, -math.inf))
        return torch.stack(heads, 1)

    def _visible(self, offsets: Tensor, distance: Tensor, direction: float) -> Tensor:
        """Returns a mask (B|1, N, N), True where the key lies in the field of view of a head with a direction.

        ``offsets`` (B|1, N, N, 2) run from query to key and ``distance`` (B|1, N, N) is their length. ``direction`` is a
        fraction of 360°, 0 to the right and 0.25 downwards: the center of a field of 180°, the first edge of a smaller one.
        """
        angle = 2 * math.pi * direction + (0 if self.field_of_view == 180 else math.radians(self.field_of_view / 2))
        along = offsets[..., 1] * math.cos(angle) + offsets[..., 0] * math.sin(angle)
        return along >= distance * math.cos(math.radians(self.field_of_view / 2)) - 1e-4

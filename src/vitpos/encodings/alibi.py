"""Linear distance bias in two dimensions (2-D ALiBi; CROMA, Fuller et al., NeurIPS 2023)."""

from __future__ import annotations

import torch
from torch import Tensor

from vitpos.encodings.base import Geometry, PositionEncoding
from vitpos.positions import Positions


class ALiBi(PositionEncoding):
    """Subtracts the distance of two patches, times a fixed slope 2^(−8h/H) of head h = 1 … H, from their logit.

    The distance is Euclidean, in units of patches.
    """

    paper = "Fuller et al. (CROMA), NeurIPS 2023"
    traits = ("translation_invariant",)

    def __init__(self, geometry: Geometry):
        super().__init__()
        self.heads = geometry.heads

    def bias(self, q: Tensor, k: Tensor, pos: Positions, layer: int) -> Tensor:
        """Returns the bias (B|1, H, N, N) that is added to the attention logits of patches, the same in all layers."""
        return self.cached(pos, "bias", lambda: self._bias(pos).to(q.dtype), q.dtype)

    def _bias(self, pos: Positions) -> Tensor:
        distance = pos.offsets().norm(dim=-1)[:, None]  # (B|1, 1, N, N)
        heads = torch.arange(1, self.heads + 1, device=distance.device)
        return -distance * 2.0 ** (-8 * heads / self.heads)[:, None, None]

"""The minimal attention model of the MNIST jigsaw experiment."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

from vitpos.errors import UserError
from vitpos.models.attention import SelfAttention
from vitpos.models.base import PatchClassifier, Shape
from vitpos.positions import Positions


class Attention(PatchClassifier):
    """One layer of one-head attention over patches, no norm, mean over tokens, a feed-forward classifier."""

    def __init__(
        self,
        image: Shape,
        classes: int,
        encoding: str = "none",
        *,
        patch: int | tuple[int, int] = 4,
        dim: int = 64,
        hidden: int = 128,
        residual: bool = False,
        qk_norm: Literal["cosine", "layernorm"] | None = None,
    ):
        super().__init__(image, encoding, patch=patch, dim=dim, heads=1, depth=1)
        if hidden < 1:
            raise UserError(f"model 'attention' got hidden={hidden}; choose 1 or more")
        self.residual = residual
        self.attention = SelfAttention(dim, 1, qk_norm=qk_norm)
        self.head = nn.Sequential(nn.Linear(dim, hidden), nn.ReLU(), nn.Linear(hidden, classes))

    def encode(self, x: Tensor, pos: Positions) -> Tensor:
        """The one layer."""
        y = self.attention(x, self.encoding, pos, 0)
        return x + y if self.residual else y

"""The minimal attention model of the MNIST jigsaw experiment."""

from __future__ import annotations

from torch import Tensor, nn

from vitpos.errors import UserError
from vitpos.models.attend import SelfAttention
from vitpos.models.base import EncodingLike, PatchClassifier, Shape
from vitpos.positions import Positions


class Attention(PatchClassifier):
    """One layer of one-head attention over patches, no norm, mean over tokens, a feed-forward classifier."""

    def __init__(
        self,
        image: Shape,
        classes: int,
        encoding: EncodingLike = "none",
        *,
        patch: int | tuple[int, int] = 4,
        dim: int = 64,
        hidden: int = 128,
        residual: bool = False,
    ):
        super().__init__(image, encoding, patch=patch, dim=dim, heads=1, depth=1)
        if hidden < 1:
            raise UserError(f"model 'attention' got hidden={hidden}; choose 1 or more")
        self.residual = residual
        self.attention = SelfAttention(dim, 1)
        self.head = nn.Sequential(nn.Linear(dim, hidden), nn.ReLU(), nn.Linear(hidden, classes))

    def encode(self, x: Tensor, pos: Positions) -> Tensor:
        """The one layer."""
        x = self.encoding.refresh(x, pos, 0)
        y = self.attention(x, self.encoding, pos, 0)
        return x + y if self.residual else y

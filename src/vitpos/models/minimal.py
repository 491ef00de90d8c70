"""The minimal attention model of the MNIST jigsaw experiment (Demeke, 2026)."""

from __future__ import annotations

from torch import Tensor, nn

from vitpos.errors import InputError
from vitpos.models.attention import QKNorm, SelfAttention
from vitpos.models.base import EncodingLike, PatchClassifier, Shape
from vitpos.positions import Positions


class MinimalAttention(PatchClassifier):
    """One layer of single-head attention over patches without a norm, mean pooling, and an MLP classifier.

    Args:
        patch: Patch size in pixels, one number or (height, width).
        hidden_dim: Width of the MLP classifier.
        residual: Adds a residual connection around attention.
        qk_norm: Normalizes queries and keys: ``cosine`` attention with a learned scale, or a ``layernorm``.
    """

    def __init__(
        self,
        image_shape: Shape,
        num_classes: int,
        encoding: EncodingLike = "none",
        *,
        patch: int | tuple[int, int] = 4,
        dim: int = 64,
        hidden_dim: int = 128,
        residual: bool = False,
        qk_norm: QKNorm = None,
    ):
        super().__init__(image_shape, encoding, patch=patch, dim=dim, heads=1, depth=1)
        if hidden_dim < 1:
            raise InputError(f"model 'minimal' got hidden_dim={hidden_dim}; choose 1 or more")
        self.residual = residual
        self.attention = SelfAttention(dim, 1, qk_norm=qk_norm)
        self.head = nn.Sequential(nn.Linear(dim, hidden_dim), nn.ReLU(), nn.Linear(hidden_dim, num_classes))

    def forward_blocks(self, x: Tensor, pos: Positions) -> Tensor:
        """Returns the patch tokens (B, N, D) after the attention layer.

        x (B, N, D) are the embedded patch tokens, ``pos`` their positions.
        """
        y = self.attention(x, self.encoding, pos, 0)
        return x + y if self.residual else y

"""The Vision Transformer (Dosovitskiy et al., ICLR 2021), pre-norm, with any position encoding."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from vitpos.encodings.base import PositionEncoding
from vitpos.errors import UserError
from vitpos.models.attend import SelfAttention
from vitpos.models.base import EncodingLike, PatchClassifier, Shape, initialise
from vitpos.positions import Positions


class ViT(PatchClassifier):
    """A ViT of any depth, width, heads and patch, with CLS or mean pooling, registers and drop-path.

    With ``pool="cls"`` the last block's answer is that of CLS alone: what an encoding says there of pairs of patches
    reaches nobody, and in a model of one block such an encoding does nothing at all. Narrow models (a dim of 64) learn
    much sooner from ``init="xavier"``, weights that go by the width, than from DeiT's .02. ``april`` leaves out the norm
    before the first attention and both residuals of the first block, as the attack of that name needs it.
    """

    def __init__(
        self,
        image: Shape,
        classes: int,
        encoding: EncodingLike = "none",
        *,
        patch: int | tuple[int, int] = 4,
        dim: int = 192,
        depth: int = 6,
        heads: int = 3,
        mlp: float = 4.0,
        pool: Literal["cls", "mean"] = "cls",
        registers: int = 0,
        drop_path: float = 0.0,
        init: Literal["normal", "xavier"] = "normal",
        april: bool = False,
    ):
        if not 0 <= drop_path < 1 or registers < 0 or mlp <= 0:
            raise UserError(
                f"model 'vit' got drop_path={drop_path}, registers={registers}, mlp={mlp}; "
                "take a drop_path from 0 to below 1, registers from 0 and an mlp above 0"
            )
        prefix = registers + (pool == "cls")
        super().__init__(image, encoding, patch=patch, dim=dim, heads=heads, depth=depth, prefix=prefix)
        self.pool = pool
        tokens = torch.randn(prefix, dim) * 0.02  # CLS first, if any, then the registers
        self.prefix = nn.Parameter(tokens) if prefix else None
        rates = torch.linspace(0, drop_path, depth, device="cpu").tolist()
        self.blocks = nn.ModuleList(Block(dim, heads, int(dim * mlp), rate) for rate in rates)
        if april:
            self.blocks[0] = Bare(dim, heads, int(dim * mlp))
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.head = nn.Linear(dim, classes)
        for module in (self.project, self.blocks, self.head):
            initialise(module, init)

    def encode(self, x: Tensor, pos: Positions) -> Tensor:
        """Prefix tokens in front, then every block, then the norm."""
        count = self.geometry.prefix
        if self.prefix is not None:
            x = torch.cat([self.encoding.lead(self.prefix).expand(len(x), -1, -1), x], 1)  # (B, T, D)
        for layer, block in enumerate(self.blocks):
            patches = x[:, count:]
            fresh = self.encoding.refresh(patches, pos, layer)
            x = x if fresh is patches else torch.cat([x[:, :count], fresh], 1)
            x = block(x, self.encoding, pos, layer)
        return self.norm(x)

    def read(self, x: Tensor) -> Tensor:
        """The CLS token, or the mean over patches."""
        return x[:, 0] if self.pool == "cls" else super().read(x)


class Block(nn.Module):
    """Attention and feed-forward, each after a norm and beside a residual."""

    def __init__(self, dim: int, heads: int, hidden: int, drop_path: float, *, eps: float = 1e-6):
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, eps=eps)
        self.attention = SelfAttention(dim, heads)
        self.norm2 = nn.LayerNorm(dim, eps=eps)
        self.mlp = _mlp(dim, hidden)
        self.drop = DropPath(drop_path)

    def forward(self, x: Tensor, encoding: PositionEncoding, pos: Positions, layer: int) -> Tensor:
        """(B, T, D) → (B, T, D)."""
        x = x + self.drop(self.attention(self.norm1(x), encoding, pos, layer))
        return x + self.drop(self.mlp(self.norm2(x)))


class Bare(nn.Module):
    """A first block without the norm before its attention and without residuals (APRIL; Lu et al., CVPR 2022)."""

    def __init__(self, dim: int, heads: int, hidden: int):
        super().__init__()
        self.attention = SelfAttention(dim, heads)
        self.norm2 = nn.LayerNorm(dim, eps=1e-6)
        self.mlp = _mlp(dim, hidden)

    def forward(self, x: Tensor, encoding: PositionEncoding, pos: Positions, layer: int) -> Tensor:
        """(B, T, D) → (B, T, D)."""
        return self.mlp(self.norm2(self.attention(x, encoding, pos, layer)))


def _mlp(dim: int, hidden: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(dim, hidden), nn.GELU(), nn.Linear(hidden, dim))


class DropPath(nn.Module):
    """In training, leaves a branch out for a share of the images and scales the rest up (stochastic depth)."""

    def __init__(self, rate: float):
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        """(B, …) → (B, …)."""
        if not self.rate or not self.training:
            return x
        keep = 1 - self.rate
        return x * x.new_empty(len(x), *[1] * (x.ndim - 1)).bernoulli_(keep).div_(keep)

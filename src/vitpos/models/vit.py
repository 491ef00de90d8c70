"""The Vision Transformer (Dosovitskiy et al., ICLR 2021), pre-norm, with any position encoding."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from vitpos.encodings.base import PositionEncoding
from vitpos.errors import InputError
from vitpos.models import hooks
from vitpos.models.attention import QKNorm, SelfAttention
from vitpos.models.base import EncodingLike, Init, PatchClassifier, Shape, init_weights
from vitpos.models.token_embedding import embed_tokens
from vitpos.positions import Positions


class ViT(PatchClassifier):
    """A Vision Transformer with any position encoding.

    With ``pool="cls"`` only the CLS row of the last block's attention affects the result. A bias between patches
    therefore has no effect in the last block, and none at all in a model of one block.

    Args:
        patch: Patch size in pixels, one number or (height, width).
        pool: What is classified: the CLS token, or the mean over the patch tokens.
        registers: Number of register tokens (Darcet et al., ICLR 2024).
        drop_path: Rate of stochastic depth in the last block, rising linearly from 0 in the first.
        weight_init: ``normal`` is DeiT's truncated normal with std 0.02, ``xavier`` is Xavier's uniform, which suits
            narrow models (dim 64).
        april_block: Leaves out the norm before the first attention and both residuals of the first block, as the APRIL
            attack needs it.
        qk_norm: Normalizes queries and keys: ``cosine`` attention with a learned scale per head (Swin-v2), or a
            ``layernorm`` per head (ViT-22B).
    """

    def __init__(
        self,
        image_shape: Shape,
        num_classes: int,
        encoding: EncodingLike = "none",
        *,
        patch: int | tuple[int, int] = 4,
        dim: int = 192,
        depth: int = 6,
        heads: int = 3,
        mlp_ratio: float = 4.0,
        pool: Literal["cls", "mean"] = "cls",
        registers: int = 0,
        drop_path: float = 0.0,
        weight_init: Init = "normal",
        april_block: bool = False,
        qk_norm: QKNorm = None,
    ):
        if not 0 <= drop_path < 1 or registers < 0 or mlp_ratio <= 0:
            raise InputError(
                f"model 'vit' got drop_path={drop_path}, registers={registers}, mlp_ratio={mlp_ratio}; "
                "choose a drop_path from 0 to below 1, 0 registers or more and an mlp_ratio above 0"
            )
        num_prefix = registers + (pool == "cls")
        super().__init__(image_shape, encoding, patch=patch, dim=dim, heads=heads, depth=depth, num_prefix=num_prefix)
        self.pool = pool
        tokens = torch.randn(num_prefix, dim) * 0.02  # CLS first, if any, then the registers
        self.prefix_tokens = nn.Parameter(tokens) if num_prefix else None
        rates = torch.linspace(0, drop_path, depth, device="cpu").tolist()
        self.blocks = nn.ModuleList(Block(dim, heads, int(dim * mlp_ratio), rate, qk_norm=qk_norm) for rate in rates)
        if april_block:
            self.blocks[0] = AprilBlock(dim, heads, int(dim * mlp_ratio), qk_norm=qk_norm)
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.head = nn.Linear(dim, num_classes)
        for module in (self.project, self.blocks, self.head):
            init_weights(module, weight_init)

    def forward_blocks(self, x: Tensor, pos: Positions) -> Tensor:
        """Prepends the prefix tokens to x (B, N, D), applies all blocks and the final norm; returns tokens (B, T, D).

        x are the embedded patch tokens, ``pos`` their positions; prefix tokens are CLS and registers.
        """
        count = self.geometry.num_prefix
        if self.prefix_tokens is not None:
            added = hooks.prefix_vectors(self.encoding, self.prefix_tokens)
            prefix = self.prefix_tokens if added is None else self.prefix_tokens + added
            x = torch.cat([prefix.expand(len(x), -1, -1), x], 1)  # (B, T, D)
        for layer, block in enumerate(self.blocks):
            if layer:
                x = embed_tokens(self.encoding, x, pos, layer, count)
            x = block(x, self.encoding, pos, layer)
        return self.norm(x)

    def pool_tokens(self, x: Tensor) -> Tensor:
        """Returns the features (B, D) of tokens x (B, T, D): the CLS token, or the mean over patches."""
        return x[:, 0] if self.pool == "cls" else super().pool_tokens(x)


class Block(nn.Module):
    """A pre-norm transformer block: attention and an MLP of width ``hidden``, each with a residual connection."""

    def __init__(
        self, dim: int, heads: int, hidden: int, drop_path: float, *, eps: float = 1e-6, qk_norm: QKNorm = None
    ):
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, eps=eps)
        self.attention = SelfAttention(dim, heads, qk_norm=qk_norm)
        self.norm2 = nn.LayerNorm(dim, eps=eps)
        self.mlp = _mlp(dim, hidden)
        self.drop = DropPath(drop_path)

    def forward(self, x: Tensor, encoding: PositionEncoding, pos: Positions, layer: int) -> Tensor:
        """Returns the tokens (B, T, D) after this block, for tokens x (B, T, D), prefix tokens (CLS and registers) first.

        Args:
            encoding: position encoding, used in attention.
            pos: positions of the patch tokens.
            layer: number of this block in the model, from 0.
        """
        x = x + self.drop(self.attention(self.norm1(x), encoding, pos, layer))
        return x + self.drop(self.mlp(self.norm2(x)))


class AprilBlock(nn.Module):
    """A transformer block without the norm before its attention and without residual connections.

    ``hidden`` is the width of its MLP. The attack APRIL (Lu et al., CVPR 2022), which reconstructs images from gradients
    in closed form, needs this as the first block.
    """

    def __init__(self, dim: int, heads: int, hidden: int, *, qk_norm: QKNorm = None):
        super().__init__()
        self.attention = SelfAttention(dim, heads, qk_norm=qk_norm)
        self.norm2 = nn.LayerNorm(dim, eps=1e-6)
        self.mlp = _mlp(dim, hidden)

    def forward(self, x: Tensor, encoding: PositionEncoding, pos: Positions, layer: int) -> Tensor:
        """Returns the tokens (B, T, D) after this block, for tokens x (B, T, D), prefix tokens (CLS and registers) first.

        Args:
            encoding: position encoding, used in attention.
            pos: positions of the patch tokens.
            layer: number of this block in the model, from 0.
        """
        return self.mlp(self.norm2(self.attention(x, encoding, pos, layer)))


def _mlp(dim: int, hidden: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(dim, hidden), nn.GELU(), nn.Linear(hidden, dim))


class DropPath(nn.Module):
    """Stochastic depth: in training, drops a residual branch for a fraction of the images and scales up the rest."""

    def __init__(self, rate: float):
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        """Returns x (B, …); in training, random images are set to zero and the others scaled by 1/(1 − rate)."""
        if not self.rate or not self.training:
            return x
        keep = 1 - self.rate
        return x * x.new_empty(len(x), *[1] * (x.ndim - 1)).bernoulli_(keep).div_(keep)

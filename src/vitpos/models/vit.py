"""The Vision Transformer (Dosovitskiy et al., ICLR 2021), pre-norm, with any position encoding."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from vitpos.encodings.base import PositionEncoding
from vitpos.errors import InputError
from vitpos.models import hooks
from vitpos.models.attention import AttentionBias, QKNorm, SelfAttention
from vitpos.models.base import EncodingLike, Init, PatchClassifier, Shape, init_weights
from vitpos.models.heads import PoolsTokens
from vitpos.models.parts import BLOCKS, HEADS, MLPS, NORMS, STEMS
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
        stem: What acts on all tokens before the first block: ``plain``, nothing, or ``norm``, a LayerNorm (CLIP).
        block: Spec of the blocks, such as ``pre_norm(mlp='swiglu', layer_scale=True)``.
        norm: The final norm: of ``tokens``, of the pooled ``features``, or ``none``.
        head: Spec of what maps features to logits, such as ``linear``, ``none`` or ``attention(heads=8)``. The heads
            ``attention``, ``cls_and_mean`` and ``distilled`` pool the tokens themselves.
        train_grid: Rows and columns of the grid to whose range the coordinates of patches are scaled, for a model that
            was trained on another grid and converted; by default the grid of the images.
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
        stem: str = "plain",
        block: str = "pre_norm",
        norm: str = "tokens",
        head: str = "linear",
        train_grid: tuple[int, int] | None = None,
    ):
        if not 0 <= drop_path < 1 or registers < 0 or mlp_ratio <= 0:
            raise InputError(
                f"model 'vit' got drop_path={drop_path}, registers={registers}, mlp_ratio={mlp_ratio}; "
                "choose a drop_path from 0 to below 1, 0 registers or more and an mlp_ratio above 0"
            )
        num_prefix = registers + (pool == "cls")
        before_blocks = STEMS.build(stem, dim)
        super().__init__(
            image_shape,
            encoding,
            patch=patch,
            dim=dim,
            heads=heads,
            depth=depth,
            num_prefix=num_prefix,
            patch_bias=before_blocks.patch_bias,
            train_grid=train_grid,
        )
        self.pool = pool
        tokens = torch.randn(num_prefix, dim) * 0.02  # CLS first, if any, then the registers
        self.prefix_tokens = nn.Parameter(tokens) if num_prefix else None
        rates = torch.linspace(0, drop_path, depth, device="cpu").tolist()
        self.stem = before_blocks
        hidden = int(dim * mlp_ratio)
        self.blocks = nn.ModuleList(BLOCKS.build(block, dim, heads, hidden, rate, qk_norm) for rate in rates)
        if april_block:
            self.blocks[0] = AprilBlock(dim, heads, hidden, qk_norm=qk_norm)
        self.norm = NORMS.build(norm, dim)
        self.head = HEADS.build(head, dim, num_classes)
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
            x = torch.cat([prefix.expand(x.shape[0], -1, -1), x], 1)  # (B, T, D)
        x = self.stem(x)
        for layer, block in enumerate(self.blocks):
            if layer:
                x = embed_tokens(self.encoding, x, pos, layer, count)
            x = block(x, self.encoding, pos, layer)
        return x if self.norm.after_pooling else self.norm(x)

    def pool_tokens(self, x: Tensor) -> Tensor:
        """Returns the features (B, F) of tokens x (B, T, D): the CLS token, the mean over patches, or as the head pools."""
        if isinstance(self.head, PoolsTokens):
            x = self.head.pool_tokens(x, self.geometry.num_prefix)
        else:
            x = x[:, 0] if self.pool == "cls" else super().pool_tokens(x)
        return self.norm(x) if self.norm.after_pooling else x


class Block(nn.Module):
    """A pre-norm transformer block: attention and an MLP of width ``hidden``, each with a residual connection.

    Args:
        eps: Number added to the variance in norms.
        mlp: Spec of the MLP, such as ``gelu`` or ``swiglu``.
        layer_scale: Multiplies the output of attention and of the MLP by learned vectors (LayerScale; CaiT, DINOv2).
        bias: Which of queries, keys and values have a bias: all (``qkv``), all but keys (``qv``), or ``none``.
        attention_norm: Applies a LayerNorm to the attention output of all heads, before its projection (EVA-02 CLIP).
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        hidden: int,
        drop_path: float,
        qk_norm: QKNorm = None,
        *,
        eps: float = 1e-6,
        mlp: str = "gelu",
        layer_scale: bool = False,
        bias: AttentionBias = "qkv",
        attention_norm: bool = False,
    ):
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, eps=eps)
        self.attention = SelfAttention(dim, heads, qk_norm=qk_norm, bias=bias, norm_eps=eps if attention_norm else None)
        self.scale1, self.scale2 = (LayerScale(dim) if layer_scale else nn.Identity() for _ in range(2))
        self.norm2 = nn.LayerNorm(dim, eps=eps)
        self.mlp = MLPS.build(mlp, dim, hidden)
        self.drop = DropPath(drop_path)

    def forward(self, x: Tensor, encoding: PositionEncoding, pos: Positions, layer: int) -> Tensor:
        """Returns the tokens (B, T, D) after this block, for tokens x (B, T, D), prefix tokens (CLS and registers) first.

        Args:
            encoding: position encoding, used in attention.
            pos: positions of the patch tokens.
            layer: number of this block in the model, from 0.
        """
        x = x + self.drop(self.scale1(self.attention(self.norm1(x), encoding, pos, layer)))
        return x + self.drop(self.scale2(self.mlp(self.norm2(x))))


class AprilBlock(nn.Module):
    """A transformer block without the norm before its attention and without residual connections.

    ``hidden`` is the width of its MLP. The attack APRIL (Lu et al., CVPR 2022), which reconstructs images from gradients
    in closed form, needs this as the first block.
    """

    def __init__(self, dim: int, heads: int, hidden: int, *, qk_norm: QKNorm = None):
        super().__init__()
        self.attention = SelfAttention(dim, heads, qk_norm=qk_norm)
        self.norm2 = nn.LayerNorm(dim, eps=1e-6)
        self.mlp = MLPS.build("gelu", dim, hidden)

    def forward(self, x: Tensor, encoding: PositionEncoding, pos: Positions, layer: int) -> Tensor:
        """Returns the tokens (B, T, D) after this block, for tokens x (B, T, D), prefix tokens (CLS and registers) first.

        Args:
            encoding: position encoding, used in attention.
            pos: positions of the patch tokens.
            layer: number of this block in the model, from 0.
        """
        return self.mlp(self.norm2(self.attention(x, encoding, pos, layer)))


class LayerScale(nn.Module):
    """Multiplies each channel by a learned number ``gamma``, which starts at 1e-5 (Touvron et al., ICCV 2021)."""

    def __init__(self, dim: int):
        super().__init__()
        self.gamma = nn.Parameter(torch.full((dim,), 1e-5))

    def forward(self, x: Tensor) -> Tensor:
        """Returns x (…, D) times ``gamma``."""
        return x * self.gamma


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

"""The heads of a `ViT`, which map features to logits; some also define how tokens are pooled to features.

A head with a method ``pool_tokens`` defines the pooling; the others get the CLS token or the mean over patches, according
to the option ``pool`` of the model.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitpos.errors import InputError
from vitpos.models.parts import MLPS


@runtime_checkable
class PoolsTokens(Protocol):
    """A head that defines its own pooling."""

    def pool_tokens(self, x: Tensor, num_prefix: int) -> Tensor:
        """Returns features (B, F) of tokens x (B, T, D), of which the first ``num_prefix`` are CLS and registers."""


class LinearHead(nn.Linear):
    """A linear layer from features to logits.

    Args:
        bias: Whether it has a bias; the projection of CLIP has none.
    """

    def __init__(self, dim: int, num_classes: int, *, bias: bool = True):
        super().__init__(dim, num_classes, bias=bias)


class NoHead(nn.Identity):
    """No head: the model returns its features; the number of classes has to be 0."""

    def __init__(self, dim: int, num_classes: int):
        super().__init__()
        if num_classes:
            raise InputError(f"head 'none' has no logits for {num_classes} classes; give 0 classes or another head")


class TanhHead(nn.Linear):
    """A linear layer and tanh, the pooler of Hugging Face's ViT; the number of classes is the number of outputs."""

    def __init__(self, dim: int, num_classes: int):
        super().__init__(dim, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Returns the outputs (B, classes), from −1 to 1, of features x (B, D)."""
        return super().forward(x).tanh()


class CLSAndMeanHead(nn.Linear):
    """A linear layer on the CLS token concatenated with the mean over patches (Hugging Face's DINOv2 classifier)."""

    def __init__(self, dim: int, num_classes: int):
        super().__init__(2 * dim, num_classes)

    def pool_tokens(self, x: Tensor, num_prefix: int) -> Tensor:
        """Returns features (B, 2·D) of tokens x (B, T, D), of which the first ``num_prefix`` are CLS and registers."""
        return torch.cat([x[:, 0], x[:, num_prefix:].mean(1)], 1)


class DistilledHead(nn.Module):
    """The mean of two linear layers, one on the CLS token and one on the next, the distillation token (DeiT)."""

    def __init__(self, dim: int, num_classes: int):
        super().__init__()
        self.cls, self.distilled = nn.Linear(dim, num_classes), nn.Linear(dim, num_classes)

    def pool_tokens(self, x: Tensor, num_prefix: int) -> Tensor:
        """Returns features (B, 2·D), the first two of the tokens x (B, T, D); ``num_prefix`` is not needed."""
        return x[:, :2].flatten(1)

    def forward(self, x: Tensor) -> Tensor:
        """Returns the logits (B, classes) of features x (B, 2·D)."""
        cls, distilled = x.chunk(2, 1)
        return (self.cls(cls) + self.distilled(distilled)) / 2


class AttentionHead(nn.Module):
    """Pools tokens by the attention of one learned query, then an MLP with a residual connection (MAP head).

    Features are y + MLP(norm(y)), where y is the attention output; a linear layer follows unless there are 0 classes.
    SigLIP pools the patches, the Perception Encoder all tokens.

    Args:
        heads: Number of attention heads.
        mlp_ratio: Width of the MLP, in units of the token width.
        mlp: Spec of the MLP.
        prefix: Whether CLS and registers are pooled too.
        eps: Number added to the variance in the norm.
    """

    def __init__(
        self,
        dim: int,
        num_classes: int,
        *,
        heads: int = 8,
        mlp_ratio: float = 4.0,
        mlp: str = "gelu",
        prefix: bool = False,
        eps: float = 1e-6,
    ):
        super().__init__()
        if heads < 1 or dim % heads:
            raise InputError(f"head 'attention' got heads={heads}, which do not divide dim={dim}; choose a divisor")
        self.heads, self.prefix = heads, prefix
        self.latent = nn.Parameter(torch.randn(1, dim) * dim**-0.5)
        self.in_proj = nn.Linear(dim, 3 * dim)  # of q, k and v
        self.proj = nn.Linear(dim, dim)
        self.norm = nn.LayerNorm(dim, eps=eps)
        self.mlp = MLPS.build(mlp, dim, int(dim * mlp_ratio))
        self.linear = nn.Linear(dim, num_classes) if num_classes else nn.Identity()

    def pool_tokens(self, x: Tensor, num_prefix: int) -> Tensor:
        """Returns features (B, D) of tokens x (B, T, D), of which the first ``num_prefix`` are CLS and registers."""
        x = x if self.prefix else x[:, num_prefix:]
        weight, bias, dim = self.in_proj.weight, self.in_proj.bias, x.shape[-1]
        q = F.linear(self.latent, weight[:dim], bias[:dim]).expand(x.shape[0], 1, -1)
        k, v = F.linear(x, weight[dim:], bias[dim:]).chunk(2, -1)
        q, k, v = (y.unflatten(2, (self.heads, -1)).transpose(1, 2) for y in (q, k, v))
        y = self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(1))  # (B, D)
        return y + self.mlp(self.norm(y))

    def forward(self, x: Tensor) -> Tensor:
        """Returns the logits (B, classes) of features x (B, D)."""
        return self.linear(x)

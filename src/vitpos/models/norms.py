"""Stems, which act on all tokens before the first block, and final norms, of a `ViT`."""

from __future__ import annotations

from typing import ClassVar

from torch import nn


class PlainStem(nn.Identity):
    """No stem: the tokens enter the first block as they are, and the patch projection has a bias."""

    patch_bias: ClassVar[bool] = True

    def __init__(self, dim: int):
        super().__init__()


class _Norm(nn.LayerNorm):
    """A LayerNorm whose only option is ``eps``."""

    def __init__(self, dim: int, *, eps: float = 1e-6):
        super().__init__(dim, eps=eps)


class NormStem(_Norm):
    """A LayerNorm of all tokens before the first block; the patch projection has no bias (CLIP, Perception Encoder).

    Args:
        eps: Number added to the variance.
    """

    patch_bias: ClassVar[bool] = False


class TokenNorm(_Norm):
    """A LayerNorm of all tokens after the last block, before pooling.

    Args:
        eps: Number added to the variance.
    """

    after_pooling: ClassVar[bool] = False


class FeatureNorm(TokenNorm):
    """A LayerNorm of the pooled features instead of the tokens (``fc_norm`` in timm).

    Args:
        eps: Number added to the variance.
    """

    after_pooling = True


class NoNorm(nn.Identity):
    """No final norm."""

    after_pooling: ClassVar[bool] = False

    def __init__(self, dim: int):
        super().__init__()

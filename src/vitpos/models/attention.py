"""Self-attention with any position encoding: the one implementation that all models share.

It handles prefix tokens (CLS and registers) and hidden positions (masked ones, which encodings must not use) for most
encodings; `PositionEncoding` names the hooks that do it themselves. A pair of tokens of which one has a hidden position
gets the plain logit q·k/√d: no bias and no rotation.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Literal, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from vitpos.encodings.base import ATTENTION_HOOKS, PositionEncoding
from vitpos.encodings.protocols import FusedLogits
from vitpos.errors import InputError
from vitpos.models import hooks
from vitpos.models.attention_weights import acts_after_softmax, add_values, mixed_weights
from vitpos.positions import Positions

QKNorm = Literal["cosine", "layernorm"] | None
AttentionBias = Literal["qkv", "qv", "none"]

double_backward_attention = partial(sdpa_kernel, SDPBackend.MATH)
"""A context manager for second derivatives: selects plain attention, because fused kernels have no double backward."""


class AttentionInputs(NamedTuple):
    """The inputs of attention after a position encoding was applied.

    q and k are (B, H, T, e), rotated, where the width e may differ from the head width d; the bias for the logits is
    (B|1, H|1, T, T) or None. If an encoding computes all logits at once, they are ``logits`` (B, H, T, T), and q, k and
    bias are not used.
    """

    q: Tensor
    k: Tensor
    bias: Tensor | None
    logits: Tensor | None = None


def attention_inputs(
    q: Tensor, k: Tensor, encoding: PositionEncoding, pos: Positions, layer: int, x: Tensor | None = None
) -> AttentionInputs:
    """Applies an encoding to q and k (B, H, T, d); returns rotated q and k with a bias for the logits, or all logits.

    ``pos`` are the positions of the patch tokens, ``layer`` is the number of the block, from 0. A pair of tokens of
    which one has a hidden (masked) position gets a bias such that its logit is the plain q·k/√d. ``x`` (B, T, D) are
    the tokens that enter attention; only encodings that define ``token_bias`` need them.
    """
    if not pos.has_hidden and (logits := _fused_logits(q, k, encoding, pos, layer)) is not None:
        return AttentionInputs(q, k, None, logits)
    prefix = q.shape[2] - pos.index.shape[1]
    bias = _bias(q, k, encoding, pos, layer, x)
    if "rotate" not in encoding.hooks:
        return AttentionInputs(q, k, bias)
    patches = q[:, :, prefix:], k[:, :, prefix:]
    rotated = hooks.rotate(encoding, *patches, pos, layer)
    if rotated[0] is patches[0] and rotated[1] is patches[1]:
        return AttentionInputs(q, k, bias)
    prefixes = hooks.rotate_prefix(encoding, q[:, :, :prefix], k[:, :, :prefix], layer)
    if prefix and rotated[0].shape[-1] < prefixes[0].shape[-1]:
        names = " + ".join(type(part).__name__ for part in encoding.parts if "rotate" in part.hooks)
        raise InputError(
            f"encoding {names!r}: rotate narrows patches to {rotated[0].shape[-1]} channels, but prefix tokens have "
            f"{prefixes[0].shape[-1]}; keep the width, or define rotate_prefix of the same width"
        )
    q2, k2 = (_with_prefix(first, rest) for first, rest in zip(prefixes, rotated, strict=True))
    plain_prefix = encoding.unrotated_prefix and prefix > 0
    if pos.has_hidden or plain_prefix:
        keep = pos.known_pairs(prefix, prefix_known=not plain_prefix)
        unrotate = (q @ k.mT - q2 @ k2.mT) * q.shape[-1] ** -0.5  # makes these logits the plain q·k
        unrotate = unrotate.masked_fill(keep, 0)
        bias = unrotate if bias is None else bias + unrotate
    return AttentionInputs(q2, k2, bias)


def _fused_logits(q: Tensor, k: Tensor, encoding: PositionEncoding, pos: Positions, layer: int) -> Tensor | None:
    acting = [part for part in encoding.parts if part.hooks.intersection(ATTENTION_HOOKS)]
    if len(acting) == 1 and "fused_logits" in acting[0].hooks:
        logits = cast(FusedLogits, acting[0]).fused_logits(q, k, pos, layer)
        shape = (*q.shape[:3], q.shape[2])
        return None if logits is None else hooks.require_tensor(acting[0], "fused_logits", logits, q.dtype, shape)
    return None


def _bias(
    q: Tensor, k: Tensor, encoding: PositionEncoding, pos: Positions, layer: int, x: Tensor | None
) -> Tensor | None:
    """Returns the bias (B|1, H|1, T, T) that an encoding adds to the logits of all tokens; None if it adds none.

    It is zero for pairs of patches of which one has a hidden (masked) position.

    Args:
        q, k: (B, H, T, d), queries and keys.
        pos: positions of the N patch tokens, the last of the T tokens.
        layer: number of the block, from 0.
        x: (B, T, D), the tokens that enter attention; only encodings that define ``token_bias`` need them.
    """
    bias = hooks.bias(encoding, q, k, pos, layer, x)
    if bias is not None and pos.has_hidden:
        prefix = q.shape[2] - pos.index.shape[1]
        bias = torch.where(F.pad(pos.known_pairs(), (prefix, 0, prefix, 0), value=True), bias, 0)
    return bias


def _with_prefix(prefix: Tensor, patches: Tensor) -> Tensor:
    """Concatenates prefix tokens (B, H, P, d) and patch tokens (B, H, N, e) to (B, H, P + N, e).

    Where an encoding widened the patches (e > d), the prefix tokens get zeros in the added channels.
    """
    if not prefix.shape[2]:
        return patches
    return torch.cat([F.pad(prefix, (0, patches.shape[-1] - prefix.shape[-1])), patches], 2)


def attention(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None = None) -> Tensor:
    """Returns softmax(q kᵀ/√d + bias) v for q, k (B, H, T, e) and v (B, H, T, d), with the fastest available kernel.

    d is the width of v, also if q and k have another width e. A bias (W, H|1, T, T) with W < B is repeated B/W times: in
    windowed attention B is the number of images times W windows. The fused CPU kernels have no gradient for a bias; if
    it needs one, the plain formula is used.
    """
    scale = v.shape[-1] ** -0.5
    if bias is not None and bias.requires_grad and torch.is_grad_enabled() and not q.is_cuda:
        if bias.shape[0] < q.shape[0]:
            return add_per_window((q * scale) @ k.mT, bias).softmax(-1) @ v
        q, k, bias = (x.flatten(0, 1) for x in (q, k, bias.expand(-1, q.shape[1], -1, -1)))
        return torch.baddbmm(bias, q, k.mT, alpha=scale).softmax(-1).unflatten(0, v.shape[:2]) @ v
    if bias is not None and 1 < bias.shape[0] < q.shape[0]:
        bias = bias.repeat(q.shape[0] // bias.shape[0], 1, 1, 1)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=scale)


def add_per_window(x: Tensor, windows: Tensor) -> Tensor:
    """Returns x (B, …) plus ``windows`` (W, …), repeated for each image: B is the number of images times W windows."""
    count = windows.shape[0]
    return x + windows if x.shape[0] == count else (x.unflatten(0, (-1, count)) + windows).flatten(0, 1)


def attention_logits(
    q: Tensor, k: Tensor, encoding: PositionEncoding, pos: Positions, layer: int, x: Tensor | None = None
) -> Tensor:
    """Returns the logits (B, H, T, T) that enter the softmax, for q and k (B, H, T, d) and a position encoding.

    ``pos`` are the positions of the patch tokens, ``layer`` is the number of the block, from 0. ``x`` (B, T, D) are the
    tokens that enter attention; only encodings that define ``token_bias`` need them.
    """
    return _logits(attention_inputs(q, k, encoding, pos, layer, x), q.shape[-1])


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    encoding: PositionEncoding,
    pos: Positions,
    layer: int,
    x: Tensor | None = None,
    mask: Tensor | None = None,
    *,
    dropout: Callable[[Tensor], Tensor] | None = None,
    need_weights: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Returns the attention output (B, H, T, d) with a position encoding, and the attention weights (B, H, T, T) or None.

    Args:
        q, k, v: (B, H, T, d), of prefix tokens (CLS and registers) first, then of the patch tokens.
        pos: Positions of the N patch tokens.
        layer: Number of the block, from 0; encodings may differ by layer.
        x: (B, T, D), the tokens that enter attention; only encodings that define ``token_bias`` need them.
        mask: (B|1, H|1, T, T), added to the logits; −∞ where a token must not be attended to. In windowed attention,
            where B is the number of images times W windows, (W, 1, T, T).
        dropout: Applied to the attention weights.
        need_weights: Computes and returns the attention weights; without them and without dropout, a fused kernel is
            used where possible.
    """
    inputs = attention_inputs(q, k, encoding, pos, layer, x)
    plain = not (need_weights or dropout or acts_after_softmax(encoding))
    if plain and inputs.logits is None:
        return attention(inputs.q, inputs.k, v, _masked(inputs.bias, mask)), None
    logits = _logits(inputs, q.shape[-1])
    weights = (logits if mask is None else add_per_window(logits, mask)).softmax(-1)
    weights = mixed_weights(weights, encoding, pos, layer, mask)
    if dropout is not None:
        weights = dropout(weights)
    return add_values(weights @ v, weights, v, encoding, pos, layer), weights


class SelfAttention(nn.Module):
    """Multi-head self-attention over all tokens with a position encoding.

    Args:
        qk_norm: ``"cosine"`` normalizes q and k to length 1 and multiplies the logits by a learned scale per head, at
            most 100 (Swin-v2); ``"layernorm"`` applies a LayerNorm to q and k of each head (ViT-22B).
        bias: Which of queries, keys and values have a bias: all (``"qkv"``), all but keys (``"qv"``), or ``"none"``.
        norm_eps: Number added to the variance in a LayerNorm of the output of all heads, before its projection; None for
            no such norm.
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        qk_norm: QKNorm = None,
        bias: AttentionBias = "qkv",
        norm_eps: float | None = None,
    ):
        super().__init__()
        self.heads, self.qk_norm = heads, qk_norm
        self.qkv = nn.Linear(dim, 3 * dim, bias=bias == "qkv")
        self.qv_bias = nn.Parameter(torch.zeros(2 * dim)) if bias == "qv" else None
        self.norm = nn.Identity() if norm_eps is None else nn.LayerNorm(dim, eps=norm_eps)
        self.proj = nn.Linear(dim, dim)
        if qk_norm == "cosine":
            self.logit_scale = nn.Parameter(torch.full((heads,), math.log(10)))
        elif qk_norm == "layernorm":
            self.q_norm, self.k_norm = (nn.LayerNorm(dim // heads, eps=1e-6) for _ in range(2))

    def forward(
        self, x: Tensor, encoding: PositionEncoding, pos: Positions, layer: int, mask: Tensor | None = None
    ) -> Tensor:
        """Returns the attention output (B, T, D) for tokens x (B, T, D), of which the first T − N are prefix tokens.

        Args:
            pos: Positions of the N patch tokens.
            layer: Number of the block, from 0; encodings may differ by layer.
            mask: For windowed attention, where B is the number of images times W windows: (W, 1, T, T), added to the
                logits of each image; −∞ where a token must not be attended to.
        """
        q, k, v = self.qkv_heads(x)
        y, _ = attend(q, k, v, encoding, pos, layer, x, mask)
        return self.proj(self.norm(y.transpose(1, 2).flatten(2)))

    def qkv_heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns q, k and v (B, H, T, d) of tokens x (B, T, D), before any position encoding.

        q and k are normalized if ``qk_norm`` is set.
        """
        # unbound before transposing, so that the gradients of q, k and v are written side by side in one pass
        qkv = self.qkv(x)
        if self.qv_bias is not None:
            q_bias, v_bias = self.qv_bias.chunk(2)
            qkv = qkv + torch.cat([q_bias, torch.zeros_like(q_bias), v_bias])
        q, k, v = (y.transpose(1, 2) for y in qkv.unflatten(2, (3, self.heads, -1)).unbind(2))
        if self.qk_norm == "cosine":
            scale = self.logit_scale.clamp(max=math.log(100)).exp() * q.shape[-1] ** 0.5  # attention divides by √d
            q, k = F.normalize(q, dim=-1) * scale[:, None, None].to(q.dtype), F.normalize(k, dim=-1)
        elif self.qk_norm == "layernorm":
            q, k = self.q_norm(q), self.k_norm(k)
        return q, k, v


def _logits(inputs: AttentionInputs, width: int) -> Tensor:
    if inputs.logits is not None:
        return inputs.logits
    return inputs.q @ inputs.k.mT * width**-0.5 + (0 if inputs.bias is None else inputs.bias)


def _masked(bias: Tensor | None, mask: Tensor | None) -> Tensor | None:
    """Returns the sum of a bias and a window mask (W, 1, T, T), either of which may be None; None if both are.

    The bias is (1, H, T, T), or (B, H, T, T) where B is the number of images times W windows; the mask is then repeated
    for each image.
    """
    if bias is None or mask is None:
        return mask if bias is None else bias
    return bias + mask if bias.shape[0] == 1 else add_per_window(bias, mask)

"""Self-attention that asks an encoding for biases and rotations: the one copy that all models share."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from vitpos.encodings.base import PositionEncoding, widen
from vitpos.positions import Positions

twice_differentiable = partial(sdpa_kernel, SDPBackend.MATH)
"""A context in which a gradient can be differentiated again: fused kernels have no double backward."""


def attend(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None = None) -> Tensor:
    """softmax(q kᵀ/√d + bias) v, for q, k, v (B, H, T, d) and a bias (W, H|1, T, T), by the fastest kernel that can.

    The bias serves the images in turns of W, which divides B: one for all, one for each, or one for each window. The
    fused kernels of the CPU have no gradient for a bias: when it needs one, the plain formula is the faster way.
    """
    if bias is not None and bias.requires_grad and torch.is_grad_enabled() and not q.is_cuda:
        scale = q.shape[-1] ** -0.5
        if len(bias) < len(q):
            return in_turns((q * scale) @ k.mT, bias).softmax(-1) @ v
        q, k, bias = (x.flatten(0, 1) for x in (q, k, bias))  # a bias of its own for each image is added on the way
        return torch.baddbmm(bias, q, k.mT, alpha=scale).softmax(-1).unflatten(0, v.shape[:2]) @ v
    if bias is not None and 1 < len(bias) < len(q):
        bias = bias.repeat(len(q) // len(bias), 1, 1, 1)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias)


def in_turns(x: Tensor, few: Tensor) -> Tensor:
    """The sum of x (B, …) and of a few (W, …) of its like, which serve the B in turns of W."""
    return x + few if len(x) == len(few) else (x.unflatten(0, (-1, len(few))) + few).flatten(0, 1)


class SelfAttention(nn.Module):
    """Attention over all tokens, several heads, with whatever the encoding says of them."""

    def __init__(self, dim: int, heads: int):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(
        self, x: Tensor, encoding: PositionEncoding, pos: Positions, layer: int, mask: Tensor | None = None
    ) -> Tensor:
        """(B, T, D) → (B, T, D); the first T − N tokens are prefix tokens.

        ``mask`` (W, 1, T, T) is added to the logits of the B in turns of W: −∞ where a token must not be seen.
        """
        q, k, v, bias, logits = self._told(x, encoding, pos, layer)
        if logits is None:
            y = attend(q, k, v, _masked(bias, mask))
        else:
            y = (logits if mask is None else in_turns(logits, mask)).softmax(-1) @ v
        return self.proj(y.transpose(1, 2).flatten(2))

    def logits(self, x: Tensor, encoding: PositionEncoding, pos: Positions, layer: int) -> Tensor:
        """(B, H, T, T): what ``forward`` puts through a softmax, for whoever wants to look at it."""
        q, k, _, bias, logits = self._told(x, encoding, pos, layer)
        if logits is None:
            logits = q @ k.mT * q.shape[-1] ** -0.5 + (0 if bias is None else bias)
        return logits

    def prepared(self, x: Tensor, encoding: PositionEncoding, layer: int) -> tuple[Tensor, Tensor, Tensor]:
        """q, k and v (B, H, T, d) before anything is said of places."""
        # unbound before transposing, so that the gradients of q, k and v are written side by side in one go
        q, k, v = (y.transpose(1, 2) for y in self.qkv(x).unflatten(2, (3, self.heads, -1)).unbind(2))
        return *encoding.prepare(q, k, layer), v

    def _told(
        self, x: Tensor, encoding: PositionEncoding, pos: Positions, layer: int
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
        """q, k and v (B, H, T, d) with what the encoding says: a bias (B|1, H, T, T), or all logits in place of q and k."""
        q, k, v = self.prepared(x, encoding, layer)
        logits = encoding.score(q, k, pos, layer)
        if logits is not None:
            return q, k, v, None, logits
        bias = encoding.bias(q, k, pos, layer)
        q, k = _rotate(q, k, encoding, pos, layer)
        return q, k, v, None if bias is None else widen(bias, x.shape[1]), None


def _masked(bias: Tensor | None, mask: Tensor | None) -> Tensor | None:
    """A bias (B|1, H, T, T) and a mask (W, 1, T, T) as one; None when there is neither."""
    if bias is None or mask is None:
        return mask if bias is None else bias
    return bias + mask if len(bias) == 1 else in_turns(bias, mask)


def _rotate(q: Tensor, k: Tensor, encoding: PositionEncoding, pos: Positions, layer: int) -> tuple[Tensor, Tensor]:
    """q and k with their patch part rotated; nothing is copied when the encoding leaves them as they are."""
    prefix = q.shape[2] - pos.cells.shape[1]
    before = q[:, :, prefix:], k[:, :, prefix:]
    after = encoding.rotate(*before, pos, layer)
    if after[0] is before[0] and after[1] is before[1]:
        return q, k
    return tuple(torch.cat([x[:, :, :prefix], y], 2) if prefix else y for x, y in zip((q, k), after, strict=True))  # type: ignore[return-value]

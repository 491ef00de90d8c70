"""What a position encoding does after the softmax of attention: mixes in weights of its own, or adds vectors to values."""

from __future__ import annotations

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor

from vitpos.encodings.base import PositionEncoding
from vitpos.encodings.protocols import ActsOnValues, MixesWeights
from vitpos.models import hooks
from vitpos.positions import Positions


def acts_after_softmax(encoding: PositionEncoding) -> bool:
    """Returns whether an encoding changes attention weights or values, so that fused attention kernels cannot be used."""
    return not encoding.hooks.isdisjoint(("mix_weights", "added_values"))


def mixed_weights(
    weights: Tensor, encoding: PositionEncoding, pos: Positions, layer: int, mask: Tensor | None = None
) -> Tensor:
    """Returns the attention ``weights`` (B, H, T, T) after the method ``mix_weights`` of encodings that define it.

    For example, `gpsa` mixes in weights that depend on positions. Only weights among patches with known (not masked)
    positions change, and rows still sum to 1.

    Args:
        pos: positions of the N patch tokens, the last of the T tokens.
        layer: number of the block, from 0.
        mask: (W, 1, T, T), 0 or −∞ for each of W attention windows; pairs with −∞ keep their weight of zero.
    """
    count, pairs = pos.index.shape[1], pos.known_pairs()
    if mask is not None:
        allowed = mask[:, :, -count:, -count:].isfinite()
        pairs = pairs & allowed.repeat(weights.shape[0] // allowed.shape[0], 1, 1, 1)
    for part in encoding.parts:
        if "mix_weights" in part.hooks:
            among = weights[:, :, -count:, -count:]
            sums = (among * pairs).sum(-1, keepdim=True)
            normalized = among * pairs / sums.clamp_min(torch.finfo(sums.dtype).tiny)
            mixed = cast(MixesWeights, part).mix_weights(normalized, pos, layer)
            mixed = hooks.require_tensor(part, "mix_weights", mixed, among.dtype, tuple(among.shape)) * pairs
            mixed = mixed * sums / mixed.sum(-1, keepdim=True).clamp_min(torch.finfo(sums.dtype).tiny)
            among = torch.where(pairs, mixed, among)
            rows = torch.cat([weights[:, :, -count:, : weights.shape[3] - count], among], 3)
            weights = torch.cat([weights[:, :, : weights.shape[2] - count], rows], 2)
    return weights


def add_values(y: Tensor, weights: Tensor, v: Tensor, encoding: PositionEncoding, pos: Positions, layer: int) -> Tensor:
    """Returns the attention output y (B, H, T, d) plus the vectors that the encoding's method ``added_values`` computes.

    For example, `shaw` adds a learned vector per offset to the values. Only patch tokens change, and pairs with a
    hidden (masked) position do not count.

    Args:
        weights: (B, H, T, T), attention weights.
        v: (B, H, T, d), values.
        pos: positions of the N patch tokens, the last of the T tokens.
        layer: number of the block, from 0.
    """
    count = pos.index.shape[1]
    for part in encoding.parts:
        if "added_values" in part.hooks:
            among = weights[:, :, -count:, -count:]
            among = among * pos.known_pairs() if pos.has_hidden else among
            added = cast(ActsOnValues, part).added_values(among, v[:, :, -count:], pos, layer)
            added = hooks.require_tensor(part, "added_values", added, y.dtype, (*y.shape[:2], count, y.shape[3]))
            y = y + F.pad(added, (0, 0, y.shape[2] - count, 0))
    return y

"""Gated positional self-attention (GPSA of ConViT; d'Ascoli et al., ICML 2021)."""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor, nn

from vitpos.encodings.base import Geometry, PositionEncoding, check_positive
from vitpos.errors import InputError
from vitpos.positions import Positions


class GPSA(PositionEncoding):
    """Mixes attention weights with weights that depend on the offset alone, by a learned gate per head.

    weights = (1 − σ(λ))·softmax(q·k/√d) + σ(λ)·softmax_j(w·(Δcolumn, Δrow, ‖Δ‖²)), with the offset Δ = p_j − p_i (key
    minus query, as in the published code) and a learned w (3,) and λ per layer and head. λ starts at 1. The first ⌊√H⌋²
    heads start like the cells of a square convolution kernel: each prefers one offset. Other heads start with small
    random w, as in the published code. Attention to prefix tokens is not changed. Differences from the published model:
    there CLS is inserted after the last layer with GPSA, the value projection starts as the identity, and w has a bias,
    which has no effect after the softmax.

    Args:
        layers: Number of first layers with GPSA; by default 10 of 12, as published, in proportion.
        locality_strength: Factor of the initial w of the heads that start as a convolution.
    """

    paper = "d'Ascoli et al. (ConViT), ICML 2021"
    traits = ("translation_invariant", "learnable")

    def __init__(self, geometry: Geometry, *, layers: int | None = None, locality_strength: float = 1.0):
        super().__init__()
        check_positive("gpsa", locality_strength=locality_strength)
        self.layers = max(1, round(geometry.depth * 10 / 12)) if layers is None else layers
        if not 1 <= self.layers <= geometry.depth:
            raise InputError(
                f"encoding 'gpsa' got layers={layers}; choose from 1 to {geometry.depth}, the model's depth"
            )
        initial = torch.randn(self.layers, geometry.heads, 3) * 0.02
        initial[:, : math.isqrt(geometry.heads) ** 2] = locality_strength * _kernel_cells(geometry.heads)
        self.offset_weight = nn.Parameter(initial)  # w: column, row, squared distance
        self.gate = nn.Parameter(torch.ones(self.layers, geometry.heads))  # λ

    def mix_weights(self, weights: Tensor, pos: Positions, layer: int) -> Tensor:
        """Returns attention weights (B, H, N, N) among patches: ``weights`` mixed with weights that depend on offsets.

        ``weights`` (B, H, N, N) are those of the softmax over patches. Layers without mixing, from number ``layers``
        (an option) on, return them unchanged.
        """
        if layer >= self.layers:
            return weights
        gate = self.gate[layer].sigmoid().to(weights.dtype)[:, None, None]
        return torch.lerp(weights, self.position_weights(pos, layer, weights.dtype), gate)

    def position_weights(self, pos: Positions, layer: int, dtype: torch.dtype) -> Tensor:
        """Returns attention weights (B|1, H, N, N) that depend on the offsets of patches alone.

        Rows sum to 1 over the patches with a known position, one that is not masked.
        """
        features = self.cached(pos, "features", partial(_features, pos, dtype), dtype)
        logits = (features @ self.offset_weight[layer].to(dtype).mT).permute(0, 3, 1, 2)
        if pos.has_hidden:  # finite, so that a row without known patches has no NaN
            logits = logits.masked_fill(~pos.known[:, None, None], torch.finfo(dtype).min)
        return logits.softmax(-1)


def _features(pos: Positions, dtype: torch.dtype) -> Tensor:
    """Returns (column, row, squared length) of the offset from each query to each key: (B|1, N, N, 3)."""
    offsets = -pos.offsets()
    return torch.cat([offsets.flip(-1), offsets.square().sum(-1, keepdim=True)], -1).to(dtype)


def _kernel_cells(heads: int) -> Tensor:
    """Returns initial weights w (k², 3) of k² heads, k = ⌊√H⌋, that prefer the offsets of a k×k convolution kernel.

    w multiplies (column, row, squared length) of an offset. Head h1 + k·h2 prefers the offset of row h1 and column h2
    of the kernel.
    """
    side = math.isqrt(heads)
    at = torch.arange(side) - (side - 1) / 2
    column, row = torch.meshgrid(at, at, indexing="ij")
    return torch.stack([2 * column, 2 * row, -torch.ones_like(row)], -1).flatten(0, 1)

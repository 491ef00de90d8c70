"""Attention statistics: mean attention, attention distance, head diversity, rollout and attention maps."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from vitpos.data.dataset import Dataset
from vitpos.errors import InputError
from vitpos.float64 import float64_device
from vitpos.inspection._batches import image_batches, image_grid
from vitpos.models.activations import AttentionCall, capture_activations, require_global_attention
from vitpos.models.base import Classifier, PatchClassifier
from vitpos.positions import Positions

LogitConsumer = Callable[[int, Tensor], None]  # called with a layer and its logits between patches (B, H, N, N)


def for_each_logits(
    model: PatchClassifier,
    data: Dataset,
    *consumers: LogitConsumer,
    limit: int | None,
    seed: int = 0,
    shuffled: bool = False,
) -> int:
    """Runs the model on test images and passes the attention logits to functions; returns the number of images.

    Each of the ``consumers`` is called as ``consumer(layer, logits)`` for every layer and batch; logits (B, H, N, N) are
    those between patches, without prefix tokens (CLS and registers).

    Args:
        limit: number of test images, sampled with ``seed``; None for all.
        shuffled: permute the patches of each image.
    """

    def pass_on(call: AttentionCall) -> None:
        logits = call.logits()[..., call.num_prefix :, call.num_prefix :]
        for consumer in consumers:
            consumer(call.layer, logits)

    images = 0
    with torch.inference_mode():
        for batch in image_batches(model, data, limit=limit, seed=seed, shuffled=shuffled):
            capture_activations(model, batch, on_attention=pass_on)
            images += len(batch)
    return images


class AttentionSum:
    """Accumulates ``total`` (depth, H, N, N), the sum over images of the attention between patches, in float64.

    ``add`` must be called for each layer and batch; :func:`for_each_logits` does so if ``add`` is passed to it.

    Args:
        model: the model whose attention is summed; gives depth, number of heads and device.
        patches: number N of patches of an image.
    """

    def __init__(self, model: PatchClassifier, patches: int):
        geometry = model.geometry
        self.total = torch.zeros(geometry.depth, geometry.heads, patches, patches, dtype=torch.float64)
        self.total = self.total.to(float64_device(model.device))

    def add(self, layer: int, logits: Tensor) -> None:
        """Adds to ``total[layer]`` the softmax of logits (B, H, N, N) between patches, summed over the batch."""
        self.total[layer] += logits.softmax(-1).to(self.total.device).sum(0, dtype=torch.float64)


def mean_attention(model: Classifier, data: Dataset, *, limit: int | None = 256, seed: int = 0) -> Tensor:
    """Returns the attention between patches (depth, H, N, N), float64, averaged over test images.

    ``limit`` is the number of images, sampled with ``seed``; None for all. Prefix tokens (CLS and registers) are left
    out as queries and keys, and each row is renormalized to sum to 1 in each image.
    """
    vit = require_global_attention(model, "mean attention")
    attention = AttentionSum(vit, math.prod(image_grid(vit, data)))
    images = for_each_logits(vit, data, attention.add, limit=limit, seed=seed)
    return (attention.total / images).cpu()


def patch_distances(grid: tuple[int, int], patch: tuple[int, int]) -> Tensor:
    """Returns the distance (N, N) between the centers of every two patches in pixels; ``patch`` is height and width."""
    offsets = Positions.from_grid(grid).offsets()[0].double() * torch.tensor(patch, dtype=torch.float64)
    return offsets.norm(dim=-1)


def attention_distance(attention: Tensor, grid: tuple[int, int], patch: tuple[int, int]) -> Tensor:
    """Returns the mean distance (…) in pixels between query and key, weighted by ``attention`` (…, N, N).

    It is the mean over queries i of Σ_j a_ij · ‖p_i − p_j‖₂ with patch centers p (ViT's Figure 7). It is linear: the
    distance of attention averaged over images is the mean of the distances of the images.

    Args:
        patch: height and width of a patch in pixels.
    """
    return (attention * patch_distances(grid, patch)).sum(-1).mean(-1)


def uniform_attention_distance(grid: tuple[int, int], patch: tuple[int, int]) -> float:
    """Returns the attention distance of uniform attention: the mean distance between two patch centers, in pixels.

    It is about 0.52 of the side of a square image. ``patch`` is the height and width of a patch in pixels.
    """
    return patch_distances(grid, patch).mean().item()


def head_diversity(attention: Tensor) -> Tensor:
    """Returns the Jensen–Shannon divergence (…) between heads of ``attention`` (…, H, N, N), from 0 (equal) to 1 bit.

    It is the mean over queries and all pairs of heads; NaN for a single head. Applied to attention averaged over images
    it measures where heads attend in general. Applied per image and averaged afterwards it also includes differences
    that depend on content, and is never smaller.
    """
    heads = attention.shape[-3]
    if heads < 2:
        return attention.new_full(attention.shape[:-3], math.nan)
    entropy = _entropy(attention)  # (…, H)
    first, second = torch.triu_indices(heads, heads, 1)
    divergences = [
        _entropy((attention[..., a, :, :] + attention[..., b, :, :]) / 2) - (entropy[..., a] + entropy[..., b]) / 2
        for a, b in zip(first.tolist(), second.tolist(), strict=True)
    ]
    return torch.stack(divergences).mean(0)


def _entropy(attention: Tensor) -> Tensor:
    """Returns the entropy (…) over keys of ``attention`` (…, N, N), in bits, mean over queries."""
    return -torch.xlogy(attention, attention).sum(-1).mean(-1) / math.log(2)


def _pooling_weights(model: PatchClassifier, tokens: int) -> Tensor:
    """Returns the weight (T,) of each final token in the pooled feature that is classified; ``tokens`` is T.

    The weights are one-hot if CLS is classified, and 1/N per patch if the mean over patches is. Heads that pool in
    another way count as CLS if the model has it, otherwise as the mean.
    """
    count = model.geometry.num_prefix
    weights = torch.zeros(tokens, device=model.device, dtype=next(model.parameters()).dtype)
    if count and getattr(model, "pool", "cls") == "cls":
        weights[0] = 1
    else:
        weights[count:] = 1 / (tokens - count)
    return weights


def attention_rollout(model: Classifier, images: Tensor) -> Tensor:
    """Returns attention rollout maps (B, R, C) on the grid of patches (Abnar & Zuidema, ACL 2020).

    Multiplies ½(A + I) over the layers, with A the attention averaged over heads, and reads the row of the pooled token
    (CLS, or the mean over patches). Columns of prefix tokens (CLS and registers) are dropped, so a map may sum to less
    than 1.

    Args:
        images: (B, channels, height, width), normalized.
    """
    vit = require_global_attention(model, "attention rollout")
    rollout: list[Tensor] = []

    def multiply(call: AttentionCall) -> None:
        weights = call.weights().mean(1)  # (B, T, T)
        step = (weights + torch.eye(weights.shape[-1], device=weights.device)) / 2
        step = step / step.sum(-1, keepdim=True)
        rollout[:] = [step @ rollout[0] if rollout else step]

    vit.eval()
    with torch.inference_mode():
        capture_activations(vit, images, on_attention=multiply)
        return _pooled_maps(vit, images, rollout[0])


def attention_maps(
    model: Classifier, images: Tensor, *, layers: Sequence[int] = (-1,), heads: Sequence[int] | None = None
) -> Tensor:
    """Returns the attention of CLS, or of the mean over patches, to each patch: (B, layers, heads, R, C).

    It is CLS if the model classifies CLS. Columns of prefix tokens (CLS and registers) are dropped, so a map may sum to
    less than 1. Figure 8 of MJP (Ren et al., CVPR 2023) shows such maps. Attention weights are computed only for the
    layers requested.

    Args:
        images: (B, channels, height, width), normalized.
        layers: layer indices, negative from the end.
        heads: head indices; all by default.
    """
    vit = require_global_attention(model, "an attention map")
    layer_indices = _indices("layers", layers, vit.geometry.depth)
    head_indices = _indices("heads", range(vit.geometry.heads) if heads is None else heads, vit.geometry.heads)
    maps: dict[int, Tensor] = {}

    def keep(call: AttentionCall) -> None:
        if call.layer in layer_indices:
            maps[call.layer] = _pooled_maps(vit, images, call.weights()[:, head_indices])

    vit.eval()
    with torch.inference_mode():
        capture_activations(vit, images, on_attention=keep)
    return torch.stack([maps[layer] for layer in layer_indices], 1)


def _pooled_maps(model: PatchClassifier, images: Tensor, weights: Tensor) -> Tensor:
    """Returns maps (…, R, C) on the grid of ``images``: attention of CLS, or mean attention of patches, to each patch.

    ``weights`` (…, T, T) is the attention between all tokens.
    """
    grid = model.positions(images).grid
    return (_pooling_weights(model, weights.shape[-1]) @ weights)[..., -grid[0] * grid[1] :].unflatten(-1, grid).cpu()


def _indices(name: str, indices: Sequence[int], count: int) -> list[int]:
    if not indices or not all(-count <= index < count for index in indices):
        raise InputError(
            f"{name}={list(indices)} is out of range for a model with {count}; choose from 0 to {count - 1}"
        )
    return [index % count for index in indices]

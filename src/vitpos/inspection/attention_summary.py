"""Summarizes the attention of each layer on test images: variance of its logits, mean attention, diversity of heads."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from vitpos.data.dataset import Dataset
from vitpos.inspection._batches import image_grid
from vitpos.inspection.attention_stats import (
    AttentionSum,
    attention_distance,
    for_each_logits,
    head_diversity,
    uniform_attention_distance,
)
from vitpos.inspection.logits import LogitMoments, LogitVariance, logit_variance
from vitpos.models.activations import require_global_attention
from vitpos.models.base import Classifier

COMPARED_IMAGES = 64  # images for per-image head diversity, whose cost grows with the square of the number of heads


@dataclass(frozen=True)
class AttentionSummary:
    """Measures of the attention of each layer of a model.

    Args:
        shuffled: variance of the logits due to position and due to content, on images whose patches are permuted.
        unshuffled: the same on the original images.
        attention: (depth, H, N, N), attention between patches, mean over images.
        attention_distance: (depth, H), mean distance in pixels between query and key, weighted by attention.
        attention_distance_uniform: the same distance for uniform attention.
        head_diversity_per_image: (depth,), Jensen–Shannon divergence between heads in bits, mean over the first images.
    """

    shuffled: LogitVariance  # on images whose patches are permuted
    unshuffled: LogitVariance  # on the original images
    attention: Tensor  # (depth, H, N, N), mean over images
    attention_distance: Tensor  # (depth, H), in pixels
    attention_distance_uniform: float
    head_diversity_per_image: Tensor  # (depth,), in bits, mean over the first images

    def numbers(self) -> dict[str, float | list[float]]:
        """Returns name → one value per layer (mean over heads), or a single number.

        position_share: fraction of the variance of the attention logits explained by the pair of positions, with the
        patches of each image permuted; unbiased, so it can be slightly negative. position_share_unshuffled: the same on
        the original images, where the average content at a position counts too. attention_distance: mean distance
        between query and key, weighted by attention, in pixels; attention_distance_uniform: that of uniform attention.
        head_diversity: Jensen–Shannon divergence, 0 to 1 bit, between the mean attention of two heads, averaged over
        queries and pairs of heads; absent for a single head. head_diversity_per_image: the same divergence computed in
        each image, mean over the first 64 images; it exceeds head_diversity if heads differ depending on the content of
        the image.
        """
        numbers: dict[str, float | list[float]] = {
            "position_share": self.shuffled.position_share.nanmean(1).tolist(),
            "position_share_unshuffled": self.unshuffled.position_share.nanmean(1).tolist(),
            "attention_distance": self.attention_distance.mean(1).tolist(),
            "attention_distance_uniform": self.attention_distance_uniform,
        }
        if self.attention.shape[1] > 1:
            numbers["head_diversity"] = head_diversity(self.attention).tolist()
            numbers["head_diversity_per_image"] = self.head_diversity_per_image.tolist()
        return numbers


def summarize_attention(
    model: Classifier, data: Dataset, *, limit: int | None = 500, seed: int = 0
) -> AttentionSummary:
    """Returns logit variances, mean attention and head diversity of each layer, over ``limit`` test images (None: all).

    The images, 2 or more, are sampled with ``seed``.
    """
    vit = require_global_attention(model, "a summary of attention")
    grid, patch = image_grid(vit, data), vit.patch
    patches = math.prod(grid)
    moments, attention_sum = LogitMoments(vit, patches), AttentionSum(vit, patches)
    diversity: list[list[Tensor]] = [[] for _ in range(vit.geometry.depth)]

    def compare_heads(layer: int, logits: Tensor) -> None:
        first = logits[: COMPARED_IMAGES - sum(map(len, diversity[layer]))]
        diversity[layer].append(head_diversity(first.softmax(-1)).cpu().double())

    images = for_each_logits(vit, data, moments.add, attention_sum.add, compare_heads, limit=limit, seed=seed)
    attention = (attention_sum.total / images).cpu()
    return AttentionSummary(
        logit_variance(vit, data, shuffled=True, limit=limit, seed=seed),
        moments.variance(images),
        attention,
        attention_distance(attention, grid, patch),
        uniform_attention_distance(grid, patch),
        torch.stack([torch.cat(layer).mean() for layer in diversity]),
    )

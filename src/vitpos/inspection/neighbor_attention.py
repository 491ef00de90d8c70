"""Attention between adjacent patches, split by whether their pixels are similar."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from vitpos.data.dataset import Dataset
from vitpos.errors import InputError
from vitpos.float64 import float64_device, to_float64
from vitpos.inspection._batches import image_batches, image_grid
from vitpos.models.activations import AttentionCall, capture_activations, require_global_attention
from vitpos.models.base import Classifier
from vitpos.patches import patchify


@dataclass(frozen=True)
class NeighborAttention:
    """Attention between adjacent patches with similar (``like``) and with different pixels (``unlike``), each (depth,).

    Values are means over pairs, heads and images, in units of uniform attention: 1 if every patch attends to all
    patches equally. images: number of images that were counted, which have adjacent patches of both kinds.
    """

    like: Tensor
    unlike: Tensor
    images: int


def neighbor_attention(
    model: Classifier, data: Dataset, *, fraction: float = 0.25, limit: int | None = 256, seed: int = 0
) -> NeighborAttention:
    """Returns the attention between horizontally or vertically adjacent patches, by the difference of their pixels.

    Adjacent patches are unlike if the Euclidean distance of their pixels is in the largest ``fraction`` of all adjacent
    pairs of the image, and like if it is in the smallest; ties are included. Pixels do not depend on the model, so the
    same pairs are compared in every model. Attention is renormalized to sum to 1 over patches, without prefix tokens,
    and averaged over the two directions of a pair. Images in which all distances are equal do not count.

    Args:
        fraction: fraction of the pairs that counts as like, and as unlike; above 0 and below 1/2.
        limit: number of test images, sampled with ``seed``; None for all.
    """
    vit = require_global_attention(model, "the attention between neighbors")
    if not 0 < fraction < 0.5:
        raise InputError(f"the attention between neighbors got fraction={fraction}; choose one above 0 and below 0.5")
    device = float64_device(vit.device)
    first, second = adjacent_pairs(image_grid(vit, data)).to(device)
    if not len(first):
        raise InputError("a grid of one patch has no neighbors; use images of more patches")
    sums = torch.zeros(vit.geometry.depth, 2, dtype=torch.float64, device=device)
    images = 0
    for batch in image_batches(vit, data, limit=limit, seed=seed):
        patches = to_float64(patchify(batch, vit.patch))
        distances = (patches[:, first] - patches[:, second]).norm(dim=2)  # (B, pairs)
        low, high = distances.quantile(torch.tensor([fraction, 1 - fraction]).to(distances), dim=1)[..., None]
        kinds = torch.stack([distances <= low, distances >= high], 1).double()  # (B, 2, pairs)
        weights = kinds / kinds.sum(2, keepdim=True) * (low < high)[:, None]

        def add(call: AttentionCall, weights: Tensor = weights) -> None:
            attention = to_float64(call.weights()[:, :, call.num_prefix :, call.num_prefix :])
            attention = (attention / attention.sum(-1, keepdim=True)).mean(1)  # (B, N, N)
            pairs = (attention[:, first, second] + attention[:, second, first]) / 2 * attention.shape[-1]
            sums[call.layer] += torch.einsum("bp,bkp->k", pairs, weights)

        with torch.inference_mode():
            capture_activations(vit, batch, on_attention=add)
        images += int((low < high).sum())
    like, unlike = (sums / images if images else sums.fill_(torch.nan)).cpu().unbind(1)
    return NeighborAttention(like, unlike, images)


def adjacent_pairs(grid: tuple[int, int]) -> Tensor:
    """Returns the indices (2, pairs) of all horizontally or vertically adjacent positions of a grid, each pair once."""
    index = torch.arange(grid[0] * grid[1]).view(grid)
    across = torch.stack([index[:, :-1].flatten(), index[:, 1:].flatten()])
    down = torch.stack([index[:-1].flatten(), index[1:].flatten()])
    return torch.cat([across, down], 1)

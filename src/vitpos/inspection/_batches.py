"""Yields batches of test images for an inspection, unchanged or with the patches of each image permuted."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from vitpos.data.dataset import Dataset
from vitpos.errors import InputError
from vitpos.models.base import PatchClassifier
from vitpos.patches import patch_grid, permute_patches, seeded_permutations

MAX_PAIRS = 2**23  # token pairs × heads × images per batch: 64 MB in float64
MAX_BATCH = 128


def image_grid(model: PatchClassifier, data: Dataset) -> tuple[int, int]:
    """Returns the number of rows and columns of patches into which the model divides each image of the data set."""
    return patch_grid(data.shape[1:], model.patch)


def image_batches(
    model: PatchClassifier,
    data: Dataset,
    *,
    limit: int | None,
    seed: int = 0,
    shuffled: bool = False,
    indices: Tensor | None = None,
) -> Iterator[Tensor]:
    """Yields normalized test images (B, channels, height, width) on the model's device; puts the model into eval mode.

    The batch size is bounded by the memory of the attention logits.

    Args:
        limit: number of test images, sampled with ``seed``; None for all.
        shuffled: permute the patches of each image by its own random permutation (also from ``seed``), so that the
            content of a patch carries no information about its position.
        indices: (M,), indices into the sampled images, of those to yield; all by default.
    """
    model.eval()
    split, grid = data.sample_test(limit, seed=seed).test, image_grid(model, data)
    patches, device = grid[0] * grid[1], model.device
    if not len(split):
        raise InputError("the data set has no test images to inspect the model on; use one that has some")
    orders = seeded_permutations(len(split), patches, seed=seed) if shuffled else None
    pairs = model.geometry.heads * (model.geometry.num_prefix + patches) ** 2
    batch_size = max(1, min(MAX_BATCH, MAX_PAIRS // pairs))
    for index in (torch.arange(len(split)) if indices is None else indices).split(batch_size):
        images = split.images[index].to(device)
        yield data.normalize(images if orders is None else permute_patches(images, grid, orders[index].to(device)))

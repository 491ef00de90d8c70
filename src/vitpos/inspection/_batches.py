"""The pictures that a model is watched on: test images, as they are or with their patches freshly shuffled."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from vitpos.data.base import Dataset
from vitpos.errors import UserError
from vitpos.models.base import PatchClassifier
from vitpos.patches import grid_of, permutations, rearrange

PAIRS = 2**23  # pairs of tokens, over heads and images, of which a batch has no more: 64 MB in float64
BATCH = 128


def grid_seen(model: PatchClassifier, data: Dataset) -> tuple[int, int]:
    """Rows and columns of patches that the model cuts the pictures of this data set into."""
    return grid_of(data.shape[1:], model.patch)


def pictures(
    model: PatchClassifier,
    data: Dataset,
    *,
    limit: int | None,
    seed: int = 0,
    shuffled: bool = False,
    which: Tensor | None = None,
) -> Iterator[Tensor]:
    """Batches of ``limit`` test images drawn by a seed, normalised, on the model's device, which is put into evaluation.

    ``shuffled``: in each image all patches change places by a permutation of its own, while positions stay with the
    slots, so that what a patch shows says nothing of where it is. ``which`` of the images drawn, if not all. Batches are
    as large as attention leaves memory for.
    """
    model.eval()
    few, grid = data.some(limit, seed=seed).test, grid_seen(model, data)
    cells, device = grid[0] * grid[1], model.project.weight.device
    if not len(few):
        raise UserError("data without test images shows nothing of a model; give a data set that has some")
    orders = permutations(len(few), cells, seed=seed) if shuffled else None
    batch = max(1, min(BATCH, PAIRS // (model.geometry.heads * (model.geometry.prefix + cells) ** 2)))
    for index in (torch.arange(len(few)) if which is None else which).split(batch):
        images = few.images[index].to(device)
        yield data.inputs(images if orders is None else rearrange(images, grid, orders[index].to(device)))

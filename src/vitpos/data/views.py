"""Views: changes of any data set before a model is trained and tested on it, as in ``"mnist + subset(limit=1000)"``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import torch

from vitpos import patches
from vitpos.data import image_ops
from vitpos.data.dataset import Dataset, Split, View, take_subset
from vitpos.data.image_files import ImageFiles
from vitpos.errors import InputError
from vitpos.patches import seeded_permutation, seeded_permutations, to_2tuple

RESIZE_BATCH = 1000  # images that are resized at once, in float32


def classes(*, keep: tuple[int, ...] = (6, 9)) -> View:
    """Keeps only the images of the class numbers ``keep``, in both splits, and relabels them 0, 1, … in that order."""

    def apply(data: Dataset) -> Dataset:
        if not keep or not set(keep) <= set(range(len(data.classes))) or len(set(keep)) < len(keep):
            raise InputError(
                f"view 'classes' got keep={keep}; choose different classes from 0 to {len(data.classes) - 1}"
            )
        kept_classes = torch.tensor(keep)

        def select(split: Split) -> Split:
            is_class = split.labels[:, None] == kept_classes  # (n, kept classes)
            kept = is_class.any(1)
            return replace(split.subset(kept.nonzero()[:, 0]), labels=is_class[kept].long().argmax(1))

        return replace(_both_splits(data, select), classes=tuple(data.classes[c] for c in keep))

    return View(apply)


def subset(*, fraction: float = 1.0, limit: int | None = None, test_limit: int | None = None, seed: int = 0) -> View:
    """Keeps a random part of the images, for quick experiments.

    Args:
        fraction: Fraction of the training images.
        limit: Maximum number of training images.
        test_limit: Maximum number of test images.
        seed: Seed of the random choice.
    """
    return View(lambda data: take_subset(data, fraction, limit, test_limit, seed=seed))


def holdout(*, fraction: float = 0.1, seed: int = 0) -> View:
    """Replaces the test split by a random ``fraction`` of the training images, which are removed from training.

    Use it to choose hyperparameters without the test images.
    """

    def apply(data: Dataset) -> Dataset:
        count = round(fraction * len(data.train))
        if not 0 < count < len(data.train):
            raise InputError(
                f"view 'holdout' got fraction={fraction} of {len(data.train)} images; leave images for both splits"
            )
        order = seeded_permutation(len(data.train), seed=seed)
        return replace(data, train=data.train.subset(order[count:]), test=data.train.subset(order[:count]))

    return View(apply)


def permute_patches(
    *, grid: tuple[int, int] = (7, 7), per: Literal["dataset", "image"] = "dataset", seed: int = 0
) -> View:
    """Permutes the patches of all images in both splits.

    Args:
        grid: Rows and columns of the patches.
        per: ``"dataset"`` uses one permutation for all images, the same as the evaluation ``jigsaw`` with the same seed;
            ``"image"`` samples one permutation for each image, so that the grid cell of a patch carries no information.
        seed: Seed of the permutations.
    """
    count = grid[0] * grid[1]

    def permute(split: Split, seed: int) -> Split:
        if isinstance(split.images, ImageFiles):
            raise InputError(
                "view 'permute_patches' needs images in memory; for image files set train.augment to 'jigsaw(…)'"
            )
        if per == "image":
            order = seeded_permutations(len(split), count, seed=seed)
        else:
            order = seeded_permutation(count, seed=seed)
        return Split(patches.permute_patches(split.images, grid, order), split.labels)

    def apply(data: Dataset) -> Dataset:
        if per == "image":  # another seed, so that test images do not repeat the permutations of training images
            return replace(data, train=permute(data.train, seed), test=permute(data.test, seed + 1))
        return _both_splits(data, lambda split: permute(split, seed))

    return View(apply)


def resize(*, size: int | tuple[int, int] = 56) -> View:
    """Resizes all images in both splits bilinearly to ``size`` (height and width), with antialiasing when they shrink.

    The aspect ratio is not kept. Models are then trained at this size; the evaluation ``resolution`` resizes the test
    images of a trained model in the same way.
    """
    height, width = to_2tuple(size)
    if min(height, width) < 1:
        raise InputError(f"view 'resize' got size={size}; take 1 pixel or more")

    def change(split: Split) -> Split:
        if isinstance(split.images, ImageFiles):
            raise InputError("view 'resize' needs images in memory; for image files set size in image_folder(…)")
        parts = [image_ops.resize(images, (height, width)) for images in split.images.split(RESIZE_BATCH)]
        return Split(torch.cat(parts), split.labels)

    return View(lambda data: _both_splits(data, change))


def _both_splits(data: Dataset, change: Callable[[Split], Split]) -> Dataset:
    return replace(data, train=change(data.train), test=change(data.test))

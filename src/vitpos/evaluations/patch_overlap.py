"""How far two classes have the same patches, whatever their positions, for two pairs of classes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from vitpos.data.dataset import Split
from vitpos.errors import InputError
from vitpos.evaluations.context import NO_PATCHES, EvalContext
from vitpos.evaluations.result import Result
from vitpos.models.base import PatchClassifier
from vitpos.patches import blank_patches, make_generator, patchify, seeded_permutation

CHUNK = 2000  # patches that are compared with all others at a time
Patches = list[Tensor]  # the patches (n, pixels) of each image, float64


def patch_overlap(
    ctx: EvalContext,
    *,
    pair: tuple[int, int] = (6, 9),
    other_pair: tuple[int, int] = (1, 8),
    blank: bool = False,
    max_images: int = 200,
    resamples: int = 2000,
    seed: int = 0,
) -> Result:
    """Overlap of the patches of two classes, compared with that of two other classes; a property of the data.

    overlap: for each patch of a test image of the pair, its nearest patch (Euclidean distance of pixels) is looked up in
    as many training images of each of the two classes. The overlap is twice the fraction of patches whose nearest one
    is of the other class (a tie counts one half), mean over images and then over the two classes: 0 if the classes have
    no similar patches, 1 if their patches have the same distribution. distance_ratio: mean distance to the nearest patch
    of the other class divided by that to the nearest of the own class; 1 if the classes have the same patches.
    other_overlap, other_distance_ratio: the same for the other pair. difference: overlap − other_overlap. overlap_low,
    overlap_high, other_overlap_low, other_overlap_high, difference_low, difference_high: 95 % bootstrap intervals over
    test images.

    Args:
        pair: Numbers of two classes.
        other_pair: Numbers of the two classes that they are compared with.
        blank: Includes patches of a single color, which most images have in common.
        max_images: Maximum number of test images, and of training images, of each class.
        resamples: Number of bootstrap samples.
        seed: Seed of images and bootstrap samples.
    """
    model, data = ctx.model, ctx.data
    if not isinstance(model, PatchClassifier):
        return Result(reason=NO_PATCHES)
    if any(not 0 <= min(both) < max(both) < len(data.classes) for both in (pair, other_pair)):
        raise InputError(
            f"evaluation 'patch_overlap' got pair={pair}, other_pair={other_pair}; "
            f"give two different classes from 0 to {len(data.classes) - 1} in each"
        )
    if max_images < 1 or resamples < 1:
        raise InputError(
            f"evaluation 'patch_overlap' got max_images={max_images}, resamples={resamples}; take 1 or more of each"
        )

    def load(split: Split, label: int) -> Patches:
        index = (split.labels == label).nonzero()[:, 0]
        chosen = index[seeded_permutation(len(index), seed=seed)[:max_images].sort().values]
        if not len(chosen):
            return []
        patches = patchify(split.subset(chosen).images[:], model.patch).double()  # (images, N, pixels)
        return [one if blank else one[~blank_patches(one, data.shape[0])] for one in patches]

    found, generator = [], make_generator(seed)
    for both in (pair, other_pair):
        test, train = ([load(split, label) for label in both] for split in (data.test, data.train))
        found.append(_overlap(test, train, resamples, generator))
    own, other = found
    numbers = {"overlap": own.value, "other_overlap": other.value, "difference": own.value - other.value}
    samples = {"overlap": own.samples, "other_overlap": other.samples, "difference": own.samples - other.samples}
    for name, each in samples.items():
        low, high = each.quantile(torch.tensor([0.025, 0.975], dtype=each.dtype)).tolist()
        numbers |= {f"{name}_low": low, f"{name}_high": high}
    return Result(numbers | {"distance_ratio": own.distance_ratio, "other_distance_ratio": other.distance_ratio})


@dataclass(frozen=True)
class _Overlap:
    """Overlap of two classes, its bootstrap samples (resamples,), and the ratio of distances; NaN without images."""

    value: float
    samples: Tensor
    distance_ratio: float


def _overlap(test: list[Patches], train: list[Patches], resamples: int, generator: torch.Generator) -> _Overlap:
    """Compares the patches of the test images of two classes with those of training images of both classes."""
    classes = [[image for image in images if len(image)] for images in test]
    if not all(classes) or not all(sum(map(len, images)) for images in train):
        return _Overlap(math.nan, torch.full((resamples,), math.nan, dtype=torch.float64), math.nan)
    references = [torch.cat(images).unique(dim=0) for images in train]
    fractions, distances = [], []
    for own, images in enumerate(classes):
        near, far = (_nearest(torch.cat(images), references[which]) for which in (own, 1 - own))
        nearer = (far < near).double() + (far == near).double() / 2  # (patches,)
        lengths = [len(image) for image in images]
        fractions.append(torch.stack([image.mean() for image in nearer.split(lengths)]))
        distances.append(torch.stack([near.sqrt().mean(), far.sqrt().mean()]))
    value = sum(each.mean() for each in fractions)
    samples = [
        each[torch.randint(len(each), (resamples, len(each)), generator=generator)].mean(1) for each in fractions
    ]
    near_mean, far_mean = torch.stack(distances).mean(0).tolist()
    return _Overlap(float(value), samples[0] + samples[1], far_mean / near_mean if near_mean else math.nan)


def _nearest(patches: Tensor, references: Tensor) -> Tensor:
    """Returns the squared distance (n,) of each patch (n, pixels) to the nearest of ``references`` (m, pixels).

    It is exact because the pixels are whole numbers in float64, so that equal distances are equal.
    """
    squares = references.square().sum(1)
    parts = [
        (part.square().sum(1, keepdim=True) + squares - 2 * part @ references.mT).amin(1)
        for part in patches.split(CHUNK)
    ]
    return torch.cat(parts)

"""Predictions on test images whose patches are permuted: all patches, or those under a block-wise mask as in MJP."""

from __future__ import annotations

from typing import Literal

import torch.nn.functional as F
from torch import Tensor

from vitpos.block_masks import block_mask, permute_masked, upsample_mask
from vitpos.errors import InputError
from vitpos.evaluations.context import EvalContext, grid_for
from vitpos.evaluations.predict import Transform, consistency
from vitpos.evaluations.result import Result
from vitpos.models.base import PatchClassifier
from vitpos.patches import (
    make_generator,
    permute_patches,
    permute_pixels,
    seeded_permutation,
    seeded_permutations,
    upsample_order,
)
from vitpos.positions import Positions


def jigsaw(
    ctx: EvalContext,
    *,
    grid: tuple[int, int] | None = None,
    positions: Literal["follow", "stay"] = "follow",
    per: Literal["dataset", "image"] = "dataset",
    seed: int = 0,
) -> Result:
    """Accuracy on test images whose patches are permuted.

    accuracy: fraction of the permuted test images, 0 to 1, whose largest logit is that of their label.
    consistency: fraction of the test images that are predicted as the same class before and after the permutation.
    logit_difference: largest difference of a logit before and after the permutation, over classes and test images,
    divided by the largest magnitude of a logit.
    consistent_correct: fraction predicted as the same class, which is that of the label.

    Args:
        grid: Rows and columns of the patches that are permuted; the grid of the model's patches by default.
        positions: ``"follow"`` gives each patch its original position; ``"stay"`` gives it the position of the grid cell
            that it moves to. Models without tokens have no positions, and both give the same result.
        per: One permutation for the whole ``"dataset"``, or one per ``"image"``.
        seed: Seed of the permutations.
    """
    grid = grid or grid_for(ctx, "jigsaw")
    cells, images = grid[0] * grid[1], len(ctx.data.test)
    if per == "dataset":
        order = seeded_permutation(cells, seed=seed)[None]
    else:
        order = seeded_permutations(images, cells, seed=seed)
    logits = ctx.predict_logits(_permutation(ctx, grid, order, follow=positions == "follow"))
    original = ctx.predict_logits()
    largest = ((logits - original).abs().max() / original.abs().max()).item()
    return Result(consistency(logits, original, ctx.data.test.labels) | {"logit_difference": largest})


def shuffle(
    ctx: EvalContext,
    *,
    mask_ratio: float = 0.15,
    grid: tuple[int, int] | None = None,
    positions: Literal["stay", "follow"] = "stay",
    hide_masked: bool = False,
    shuffle_pixels: bool = False,
    exact_count: bool = False,
    seed: int = 0,
) -> Result:
    """Consistency of predictions when the patches under a block-wise mask are shuffled (MJP, eq. 6 and 7).

    Each test image has its own mask and permutation, which are the same for all models.
    accuracy: fraction of the shuffled test images, 0 to 1, whose largest logit is that of their label.
    consistency: fraction of the test images that are predicted as the same class with and without shuffling.
    consistent_correct: fraction predicted as the same class, which is that of the label. kl_divergence: mean over images of
    the Kullback–Leibler divergence Σ p ln(p / q), in nats, of the softmax probabilities p of the original and q of the
    shuffled image.
    feature_distance_sq: mean over images of the squared Euclidean distance between the features that enter the head, of the
    shuffled and of the original image, as in MJP's paper. feature_distance: the same without the square, as in MJP's code.
    feature_distance_rel: mean of the distance divided by the norm of the original image's features.
    masked_fraction: fraction of the patches under a mask.

    Args:
        mask_ratio: Maximum fraction of masked grid cells, 0 to 1.
        grid: Rows and columns of the patches that are masked and shuffled; the grid of the model's patches by default.
        positions: ``"stay"`` gives each patch the position of the grid cell that it moves to; ``"follow"`` its original
            position, which needs a model with tokens.
        hide_masked: Replaces the positions of masked patches by the encoding's unknown vector (mask-aware), which only some
            encodings have, such as ``mjp``. Without it the evaluation is mask-blind.
        shuffle_pixels: Also shuffles the pixels within every grid cell, by one permutation for all cells and images
            (MJP's SPP with ratio 1).
        exact_count: Masks exactly the fraction ``mask_ratio``, rounded down to whole cells.
        seed: Seed of masks and permutations.
    """
    model, data = ctx.model, ctx.data
    grid = grid or grid_for(ctx, "shuffle")
    if not 0 <= mask_ratio <= 1:
        raise InputError(f"evaluation 'shuffle' got mask_ratio={mask_ratio}; choose a fraction from 0 to 1")
    if hide_masked and not (isinstance(model, PatchClassifier) and model.encoding.unknown_vector() is not None):
        return Result(reason="hide_masked=True needs an encoding with an unknown vector, such as mjp")
    if positions == "follow" and not isinstance(model, PatchClassifier):
        return Result(reason="positions='follow' needs a model with patch tokens")
    generator = make_generator(seed)
    mask = block_mask(grid, mask_ratio, batch=len(data.test), exact_count=exact_count, generator=generator)
    order = permute_masked(mask, generator=generator)
    permute = _permutation(ctx, grid, order, follow=positions == "follow", hidden=mask if hide_masked else None)

    def permute_also_pixels(images: Tensor, start: int) -> tuple[Tensor, Positions | None]:
        permuted, pos = permute(images, start)
        pixels = images.shape[2] * images.shape[3] // mask.shape[1]
        return permute_pixels(permuted, grid, seeded_permutation(pixels, seed=seed).to(images.device)), pos

    original_features, original_logits = ctx.features_and_logits()
    features, logits = ctx.features_and_logits(permute_also_pixels if shuffle_pixels else permute)
    distance = (features - original_features).double().norm(dim=1)
    numbers = consistency(logits, original_logits, data.test.labels) | {
        "kl_divergence": _kl_divergence(original_logits, logits),
        "feature_distance_sq": distance.square().mean().item(),
        "feature_distance": distance.mean().item(),
        "feature_distance_rel": (distance / original_features.double().norm(dim=1).clamp_min(1e-12)).mean().item(),
        "masked_fraction": mask.double().mean().item(),
    }
    return Result(numbers)


def _permutation(
    ctx: EvalContext, grid: tuple[int, int], order: Tensor, *, follow: bool, hidden: Tensor | None = None
) -> Transform:
    """Returns a function ``(images, index of the first image) -> (permuted images, positions)`` for batches of test images.

    The positions are None if the model has no patches, or uses the positions of its grid.

    Args:
        grid: Rows and columns of the cells that are permuted.
        order: (n|1, rows · columns), one order per test image or one for all; cell i gets the content of cell ``order[i]``.
        follow: Whether positions are permuted like the patches.
        hidden: (n|1, rows · columns), True at cells whose position is hidden, that is, not used by the model.
    """

    def permute(images: Tensor, start: int) -> tuple[Tensor, Positions | None]:
        rows = slice(start, start + len(images)) if len(order) > 1 else slice(None)
        batch_order = order[rows].to(images.device)
        permuted = permute_patches(images, grid, batch_order)
        if not isinstance(ctx.model, PatchClassifier) or not (follow or hidden is not None):
            return permuted, None
        pos = ctx.model.positions(images)
        if follow:
            pos = pos.permute(upsample_order(batch_order, grid, pos.grid))
        if hidden is not None:
            pos = pos.hide(upsample_mask(hidden[rows].to(images.device), grid, pos.grid))
        return permuted, pos

    return permute


def _kl_divergence(original: Tensor, shuffled: Tensor) -> float:
    """Returns the mean Kullback–Leibler divergence KL(original ‖ shuffled) of logits (n, classes), in nats."""
    p, q = (x.double().log_softmax(1) for x in (original, shuffled))
    return F.kl_div(q, p, reduction="batchmean", log_target=True).item()

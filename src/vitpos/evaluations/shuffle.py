"""Consistency of predictions when the patches under a block-wise mask are shuffled, as in MJP."""

from __future__ import annotations

from typing import Literal

import torch.nn.functional as F
from torch import Tensor

from vitpos.errors import InputError
from vitpos.evaluations.context import EvalContext, grid_for
from vitpos.evaluations.predict import share
from vitpos.evaluations.result import Result
from vitpos.masks import block_mask, permute_masked, upsample_mask
from vitpos.models.base import PatchClassifier
from vitpos.patches import make_generator, permute_patches, permute_pixels, seeded_permutation, upsample_order
from vitpos.positions import Positions


def shuffle(
    ctx: EvalContext,
    *,
    ratio: float = 0.15,
    grid: tuple[int, int] | None = None,
    positions: Literal["stay", "follow", "told"] = "stay",
    pixels: bool = False,
    exact: bool = False,
    seed: int = 0,
) -> Result:
    """Consistency of predictions when the patches under a block-wise mask are shuffled (MJP, eq. 6 and 7).

    Each test image has its own mask and permutation, which are the same for all models.
    accuracy: fraction of the shuffled test images, 0 to 1, whose largest logit is that of their label.
    consistency: fraction of the test images that are predicted as the same class with and without shuffling.
    consistent_and_right: fraction predicted as the same class, which is that of the label. divergence: mean over images of
    the Kullback–Leibler divergence Σ p ln(p / q), in nats, of the softmax probabilities p of the original and q of the
    shuffled image.
    difference: mean over images of the squared Euclidean distance between the features that enter the head, of the shuffled
    and of the original image, as in MJP's paper. difference_unsquared: the same without the square, as in MJP's code.
    difference_relative: mean of the distance divided by the norm of the original image's features.
    shuffled: fraction of the patches under a mask.

    Args:
        ratio: Maximum fraction of masked grid cells, 0 to 1.
        grid: Rows and columns of the cells; the grid of the model's patches by default.
        positions: ``"stay"`` gives each patch the position of the grid cell that it moves to; ``"follow"`` its original
            position, which needs a model with tokens; ``"told"`` hides the masked positions from the model (mask-aware),
            which needs an encoding with an unknown vector, such as ``mjp``. Other models get no numbers.
        pixels: Also shuffles the pixels within every cell, by one permutation for all (MJP's SPP with ratio 1).
        exact: Masks exactly the fraction ``ratio``, rounded down to whole cells.
        seed: Seed of masks and permutations.
    """
    model, data = ctx.model, ctx.data
    grid, own = grid_for(ctx, grid, "shuffle")
    if not 0 <= ratio <= 1:
        raise InputError(f"evaluation 'shuffle' got ratio={ratio}; choose a fraction from 0 to 1")
    has_unknown_vector = isinstance(model, PatchClassifier) and model.encoding.unknown_vector() is not None
    if (positions == "told" and not has_unknown_vector) or (positions == "follow" and not own):
        return Result()
    generator = make_generator(seed)
    mask = block_mask(grid, ratio, batch=len(data.test), exact_count=exact, generator=generator)
    order = permute_masked(mask, generator=generator)

    def shuffle_images(images: Tensor, start: int) -> tuple[Tensor, Positions | None]:
        rows = slice(start, start + len(images))
        origin, hidden = order[rows].to(images.device), mask[rows].to(images.device)
        shuffled = permute_patches(images, grid, origin)
        if pixels:
            pixel_order = seeded_permutation(shuffled.shape[2] * shuffled.shape[3] // mask.shape[1], seed=seed)
            shuffled = permute_pixels(shuffled, grid, pixel_order.to(images.device))
        if not isinstance(model, PatchClassifier) or not own or positions == "stay":
            return shuffled, None
        if positions == "follow":
            return shuffled, model.positions(images).permute(upsample_order(origin, grid, own))
        return shuffled, model.positions(images).hide(upsample_mask(hidden, grid, own))

    original_features, original_logits = ctx.features_and_logits()
    features, logits = ctx.features_and_logits(shuffle_images)
    distance = (features - original_features).double().norm(dim=1)
    predicted, labels = logits.argmax(1), data.test.labels
    same = predicted == original_logits.argmax(1)
    return Result(
        {
            "accuracy": share(predicted == labels),
            "consistency": share(same),
            "consistent_and_right": share(same & (predicted == labels)),
            "divergence": _divergence(original_logits, logits),
            "difference": distance.square().mean().item(),
            "difference_unsquared": distance.mean().item(),
            "difference_relative": (distance / original_features.double().norm(dim=1).clamp_min(1e-12)).mean().item(),
            "shuffled": mask.double().mean().item(),
        }
    )


def _divergence(original: Tensor, shuffled: Tensor) -> float:
    """Returns the mean Kullback–Leibler divergence KL(original ‖ shuffled) of logits (n, classes), in nats."""
    p, q = (x.double().log_softmax(1) for x in (original, shuffled))
    return F.kl_div(q, p, reduction="batchmean", log_target=True).item()

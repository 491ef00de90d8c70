"""How many patches the block masks of Masked Jigsaw Puzzle (MJP) training cover."""

from __future__ import annotations

from typing import Literal

from vitpos.block_masks import BLOCK_OPTIONS, block_mask
from vitpos.errors import InputError
from vitpos.evaluations.context import EvalContext, grid_for
from vitpos.evaluations.result import Result
from vitpos.metrics.statistics import wilson_interval
from vitpos.patches import make_generator


def mask_coverage(
    ctx: EvalContext,
    *,
    mask_ratio: float = 0.03,
    block_size: Literal["scaled", "published", "exact"] = "published",
    grid: tuple[int, int] | None = None,
    masks: int = 10000,
    seed: int = 0,
) -> Result:
    """Coverage of the random block masks that MJP training samples; a property of the sampler, not of the model.

    empty_fraction: fraction of the masks, 0 to 1, that cover no patch, so that training with them shuffles nothing.
    empty_low, empty_high: its 95 % interval (Wilson). single_fraction: fraction of the masks that cover one patch, which
    cannot be shuffled either. covered: mean fraction of the patches that a mask covers.

    Args:
        mask_ratio: Maximum fraction of the patches that a mask covers.
        block_size: Areas of the rectangles: ``"published"`` is 8 to 75 patches, made for a 14×14 grid; ``"scaled"``
            scales these areas with the grid; ``"exact"`` also adds single patches until the ratio is reached.
        grid: Rows and columns of patches; by default those of the model.
        masks: Number of masks.
        seed: Seed of the masks.
    """
    if masks < 1:
        raise InputError(f"evaluation 'mask_coverage' got masks={masks}; take 1 or more")
    rows, columns = grid or grid_for(ctx, "mask_coverage")
    options = BLOCK_OPTIONS[block_size]
    sampled = block_mask((rows, columns), mask_ratio, batch=masks, generator=make_generator(seed), **options)
    covered = sampled.sum(1)
    empty = int((covered == 0).sum())
    low, high = wilson_interval(empty, masks)
    return Result(
        {
            "empty_fraction": empty / masks,
            "empty_low": low,
            "empty_high": high,
            "single_fraction": (covered == 1).double().mean().item(),
            "covered": covered.double().mean().item() / (rows * columns),
        }
    )

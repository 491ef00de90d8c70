"""Accuracy on test images whose patches are permuted."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from vitpos.evaluations.context import EvalContext, grid_for
from vitpos.evaluations.predict import share
from vitpos.evaluations.result import Result
from vitpos.models.base import PatchClassifier
from vitpos.patches import permute_patches, seeded_permutation, seeded_permutations, upsample_order
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
    agreement: fraction of the test images that are predicted as the same class before and after the permutation.

    Args:
        grid: Rows and columns of the patches that are permuted; the grid of the model's patches by default.
        positions: ``"follow"`` gives each patch its original position; ``"stay"`` gives it the position of the grid cell
            that it moves to. Models without tokens have no positions, and both give the same result.
        per: One permutation for the whole ``"dataset"``, or one per ``"image"``.
        seed: Seed of the permutations.
    """
    model, data = ctx.model, ctx.data
    grid, own = grid_for(ctx, grid, "jigsaw")
    cells = grid[0] * grid[1]
    order = (
        seeded_permutation(cells, seed=seed)
        if per == "dataset"
        else seeded_permutations(len(data.test), cells, seed=seed)
    )
    token_order = upsample_order(order, grid, own) if own and positions == "follow" else None

    def permute(images: Tensor, start: int) -> tuple[Tensor, Positions | None]:
        rows = slice(start, start + len(images)) if per == "image" else slice(None)
        permuted = permute_patches(images, grid, order[rows].to(images.device))
        if not isinstance(model, PatchClassifier) or token_order is None:
            return permuted, None
        return permuted, model.positions(images).permute(token_order[rows].to(images.device))

    predicted, original = ctx.predict(permute).argmax(1), ctx.predict().argmax(1)
    return Result({"accuracy": share(predicted == data.test.labels), "agreement": share(predicted == original)})

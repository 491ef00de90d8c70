"""Pictures whose patches were rearranged after training."""

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
    """Right answers on test images cut along a grid and rearranged.

    accuracy: share of the rearranged test images, 0 to 1, whose largest logit is their label's.
    agreement: share answered as the picture in its right order is.
    ``positions="follow"``: each patch keeps the position of the place it came from; ``"stay"``: it takes the position
    of the slot it lies in. A model without tokens has no positions to give and sees the rearranged picture either way.
    ``per="dataset"``: one permutation for all images, the one that ``seed`` stands for; ``"image"``: one for each.
    ``grid``: rows and columns of the cut; without it, the model's own patches.
    """
    model, data = ctx.model, ctx.data
    grid, own = grid_for(ctx, grid, "jigsaw")
    cells = grid[0] * grid[1]
    order = (
        seeded_permutation(cells, seed=seed)
        if per == "dataset"
        else seeded_permutations(len(data.test), cells, seed=seed)
    )
    finer = upsample_order(order, grid, own) if own and positions == "follow" else None

    def change(images: Tensor, start: int) -> tuple[Tensor, Positions | None]:
        rows = slice(start, start + len(images)) if per == "image" else slice(None)
        moved = permute_patches(images, grid, order[rows].to(images.device))
        if not isinstance(model, PatchClassifier) or finer is None:
            return moved, None
        return moved, model.positions(images).permute(finer[rows].to(images.device))

    answers, usual = ctx.predict(change).argmax(1), ctx.predict().argmax(1)
    return Result({"accuracy": share(answers == data.test.labels), "agreement": share(answers == usual)})

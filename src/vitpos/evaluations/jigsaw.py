"""Pictures whose patches were rearranged after training."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from vitpos.data.dataset import Dataset
from vitpos.errors import UserError
from vitpos.evaluations.predict import predict, share
from vitpos.models.base import Classifier, PatchClassifier
from vitpos.patches import permute_patches, seeded_permutation, seeded_permutations, upsample_order
from vitpos.positions import Positions


def jigsaw(
    model: Classifier,
    data: Dataset,
    *,
    grid: tuple[int, int] | None = None,
    positions: Literal["follow", "stay"] = "follow",
    per: Literal["dataset", "image"] = "dataset",
    seed: int = 0,
) -> dict[str, float]:
    """Right answers on test images cut along a grid and rearranged.

    accuracy: share of the rearranged test images, 0 to 1, whose largest logit is their label's.
    agreement: share answered as the picture in its right order is.
    ``positions="follow"``: each patch keeps the position of the place it came from; ``"stay"``: it takes the position
    of the slot it lies in. A model without tokens has no positions to give and sees the rearranged picture either way.
    ``per="dataset"``: one permutation for all images, the one that ``seed`` stands for; ``"image"``: one for each.
    ``grid``: rows and columns of the cut; without it, the model's own patches.
    """
    own = model.positions(data.test.images[:1]).grid if isinstance(model, PatchClassifier) else None
    grid = grid or own
    if grid is None:
        raise UserError("evaluation 'jigsaw' needs grid=(rows, columns) for a model without patches")
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

    answers, usual = predict(model, data, change).argmax(1), predict(model, data).argmax(1)
    return {"accuracy": share(answers == data.test.labels), "agreement": share(answers == usual)}

"""Pictures of another size than the model was trained on."""

from __future__ import annotations

from copy import deepcopy
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from vitpos.data.base import Dataset
from vitpos.errors import UserError
from vitpos.evaluations.predict import predict, share
from vitpos.models.base import Classifier, PatchClassifier
from vitpos.patches import grid_of
from vitpos.positions import Positions


def resolution(
    model: Classifier,
    data: Dataset,
    *,
    size: tuple[int, int] = (56, 56),
    coordinates: Literal["fit", "beyond", "ntk"] = "fit",
    tables: str | None = None,
) -> dict[str, float]:
    """Right answers on test images resized to another height and width, so that the grid of patches changes.

    accuracy: share of the resized test images, 0 to 1, whose largest logit is their label's. Images are resized
    bilinearly (antialiased when shrunk). ``coordinates="fit"``: the new grid is laid over the span of the training grid;
    ``"beyond"``: its places keep whole coordinates, so that a larger grid goes beyond it; ``"ntk"``: the same, with
    rotations slowed down so that their slowest turns no further than in training. ``tables``: stored tables are first
    resampled for good to the new grid, by ``bicubic``, ``bilinear`` or ``area``, with ``-antialias`` or ``-norm`` or both.
    """
    if not isinstance(model, PatchClassifier):
        raise UserError("evaluation 'resolution' is for models with patches; leave it out for this one")
    try:
        grid = grid_of(size, model.patch)
    except UserError:
        high, wide = model.patch
        raise UserError(
            f"evaluation 'resolution' got size={size}, which is not made of whole patches of {high}x{wide}; "
            f"give multiples of {high} and {wide}"
        ) from None
    positions = Positions.of(grid, fit=model.span if coordinates == "fit" else None)
    if tables:
        model = model.resized(grid, how=tables)
    if coordinates == "ntk":
        model = deepcopy(model)
        model.encoding = model.encoding.slowed(max(new / old for new, old in zip(grid, model.span, strict=True)))

    def change(images: Tensor, start: int) -> tuple[Tensor, Positions]:
        wide = F.interpolate(images.float(), size=size, mode="bilinear", antialias=True, align_corners=False)
        return wide.round().clamp(0, 255).to(torch.uint8), positions

    return {"accuracy": share(predict(model, data, change).argmax(1) == data.test.labels)}

"""How much a patch says by itself, before and after it is told its place."""

from __future__ import annotations

import torch
from torch import Tensor

from vitpos.data.dataset import Dataset
from vitpos.errors import UserError
from vitpos.models.base import Classifier, PatchClassifier
from vitpos.patches import patchify


def tokens(model: Classifier, data: Dataset) -> dict[str, float]:
    """How many different patch embeddings an image has, before and after positions are added (mean over test images).

    patches: patches per image. blank: share of patches, 0 to 1, of one single colour.
    distinct_before, distinct_after: patch embeddings per image that differ from each other, before and after the
    encoding added to them. Two count as one when no component differs by more than 1e-5 of the embeddings' spread.
    """
    if not isinstance(model, PatchClassifier):
        raise UserError("evaluation 'tokens' is for models with patches; leave it out for this one")
    model.eval()
    direction = torch.randn(model.geometry.dim, generator=torch.Generator().manual_seed(0))
    sums = torch.zeros(3, dtype=torch.float64)
    with torch.inference_mode():
        for start in range(0, len(data.test), 500):
            images = data.test.images[start : start + 500].to(model.project.weight.device)
            pixels = patchify(images, model.patch).unflatten(2, (images.shape[1], -1))  # (B, N, channels, p·q)
            x = model.patch_tokens(data.normalize(images))
            placed = model.encoding.embed(x, model.positions(images))
            blank = (pixels == pixels[..., :1]).all(3).all(2).double().mean(1)
            sums += torch.stack([blank.sum(), _distinct(x, direction), _distinct(placed, direction)]).cpu()
    blank, before, after = (sums / len(data.test)).tolist()
    return {"patches": pixels.shape[1], "blank": blank, "distinct_before": before, "distinct_after": after}


def _distinct(x: Tensor, direction: Tensor) -> Tensor:
    """The number of different rows of x (B, N, D) per image, summed over the images."""
    order = (x.double() @ direction.to(x.device).double()).argsort(1)  # equal rows become neighbours: (B, N)
    steps = x.gather(1, order[..., None].expand_as(x)).diff(dim=1).abs().amax(2)
    return (steps > 1e-5 * x.std()).sum().double() + len(x)

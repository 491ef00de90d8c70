"""Number of distinct patch embeddings per image, before and after the position encoding is added."""

from __future__ import annotations

import torch
from torch import Tensor

from vitpos.evaluations.context import NO_PATCHES, EvalContext
from vitpos.evaluations.result import Result
from vitpos.float64 import float64_device
from vitpos.models.base import PatchClassifier
from vitpos.models.token_embedding import embed
from vitpos.patches import blank_patches, patchify


def token_diversity(ctx: EvalContext) -> Result:
    """Number of distinct patch embeddings per image, before and after the position encoding is added.

    All values are means over the test images. patches: number of patches per image. blank_fraction: fraction of the
    patches, 0 to 1, with a single color. distinct_before, distinct_after: number of distinct patch embeddings per image,
    before and after the position encoding is added. Two embeddings are equal if no component differs by more than 1e-5 of
    their std.
    """
    model, data = ctx.model, ctx.data
    if not isinstance(model, PatchClassifier):
        return Result(reason=NO_PATCHES)
    model.eval()
    direction = torch.randn(model.geometry.dim, generator=torch.Generator().manual_seed(0))
    sums = torch.zeros(3, dtype=torch.float64)
    with torch.inference_mode():
        for start in range(0, len(data.test), 500):
            images = data.test.images[start : start + 500].to(model.device)
            pixels = patchify(images, model.patch)  # (B, N, channels·p·q)
            x = model.patch_tokens(data.normalize(images))
            encoded = embed(model.encoding, x, model.positions(images), 0)
            blank = blank_patches(pixels, images.shape[1]).cpu().double().mean(1)
            sums += torch.stack([blank.sum(), _distinct(x, direction).cpu(), _distinct(encoded, direction).cpu()])
    blank, before, after = (sums / len(data.test)).tolist()
    return Result(
        {"patches": pixels.shape[1], "blank_fraction": blank, "distinct_before": before, "distinct_after": after}
    )


def _distinct(x: Tensor, direction: Tensor) -> Tensor:
    """Counts the distinct vectors among the N tokens of each image in x (B, N, D); returns the sum over images, a scalar.

    The vectors of an image are sorted by their projection on ``direction`` (D,), so that equal ones are neighbors, and
    neighbors are compared. They are equal if no component differs by more than 1e-5 of the std of x.
    """
    x = x.to(float64_device(x.device))
    order = (x.double() @ direction.to(x.device).double()).argsort(1)  # (B, N); makes equal rows neighbors
    steps = x.gather(1, order[..., None].expand_as(x)).diff(dim=1).abs().amax(2)
    return (steps > 1e-5 * x.std()).sum().double() + len(x)

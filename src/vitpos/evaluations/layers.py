"""What happens inside a model: tokens after each block, and the logits of each attention."""

from __future__ import annotations

import torch
from torch import Tensor

from vitpos.models.activations import Attending, look_inside
from vitpos.models.base import PatchClassifier
from vitpos.positions import Positions


def layers(
    model: PatchClassifier, images: Tensor, positions: Positions | None = None
) -> tuple[list[Tensor], list[Tensor]]:
    """Patch tokens (B, N, D) after each layer, and the logits (B, H, N, N) among patches that each attention makes.

    For models whose tokens stay on one grid; the others give empty lists. Nothing of it is kept on the model.
    """
    tokens: list[Tensor] = []
    logits: list[Tensor] = []
    if model.by_slot:
        return tokens, logits

    def hear(layer: int, x: Tensor) -> None:
        if layer:
            tokens.append(x)

    def listen(attending: Attending) -> None:
        prefix = attending.prefix
        logits.append(attending.logits()[:, :, prefix:, prefix:])

    look_inside(model, images, positions, tokens=hear, attention=listen)
    return tokens, logits


def relative_error(found: Tensor, expected: Tensor) -> Tensor:
    """(B,): the length of the difference over that of what is expected, for each image.

    Two −∞ are alike; where only one of the two is −∞, they differ by the root mean square of all finite ones expected.
    """
    found, expected = found.flatten(1).double(), expected.flatten(1).double()
    blind, should = found.isneginf(), expected.isneginf()
    length = expected.masked_fill(should, 0).norm(dim=1)
    usual = length / (~should).sum(1).clamp_min(1).sqrt()
    difference = (found - expected).masked_fill(blind | should, 0).where(blind == should, usual[:, None])
    return difference.norm(dim=1) / length.clamp_min(torch.finfo(torch.float64).tiny)

"""What happens inside a model: tokens after each block, and the logits of each attention."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from vitpos.models.attend import SelfAttention
from vitpos.models.base import PatchClassifier
from vitpos.models.vit import Block
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
    prefix = model.geometry.prefix

    def look(module: nn.Module, inputs: Any, output: Tensor) -> None:
        tokens.append(output[:, prefix:])

    def listen(module: SelfAttention, inputs: Any) -> None:
        logits.append(module.logits(*inputs[:4])[:, :, prefix:, prefix:])

    attentions = [module for module in model.modules() if isinstance(module, SelfAttention)]
    blocks = [module for module in model.modules() if isinstance(module, Block)] or attentions
    handles = [module.register_forward_hook(look) for module in blocks]
    handles += [module.register_forward_pre_hook(listen) for module in attentions]
    try:
        model.features(images, positions)
    finally:
        for handle in handles:
            handle.remove()
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

"""Mixup and CutMix: images and targets mixed with others of their batch."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.distributions import Beta

from vitpos.errors import InputError
from vitpos.training.augment.base import Augment


class Mix(Augment):
    """Mixes each image with a partner by mixup or CutMix, as timm's Mixup in mode "batch" (arXiv 1710.09412, 1905.04899).

    One weight λ of the image is sampled per batch from Beta(α, α); its partner has 1 − λ. Partners are the batch in
    reverse order. CutMix pastes a box of 1 − λ of the area around a random pixel; λ is corrected for what the border cuts
    off, so that targets are fractions of pixels.

    Args:
        mixup: α of mixup; 0 disables it.
        cutmix: α of CutMix; 0 disables it.
        prob: Probability that a batch is mixed.
        switch_prob: Probability of CutMix, instead of mixup, if both are enabled.
    """

    mixes_targets = True

    def __init__(self, *, mixup: float = 0.8, cutmix: float = 1.0, prob: float = 1.0, switch_prob: float = 0.5):
        if mixup < 0 or cutmix < 0 or mixup == cutmix == 0:
            raise InputError(
                f"augmentation 'mix' got mixup={mixup}, cutmix={cutmix}; both are 0 or more, and one is above 0"
            )
        if not 0 <= prob <= 1 or not 0 <= switch_prob <= 1:
            raise InputError(f"augmentation 'mix' got prob={prob}, switch_prob={switch_prob}; give numbers from 0 to 1")
        self.mixup, self.cutmix, self.prob = mixup, cutmix, prob
        self.switch_prob = switch_prob if mixup and cutmix else float(cutmix > 0)

    def on_inputs(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Mixes inputs (B, C, height, width) and their targets (B, classes), class probabilities; returns both."""
        mix_draw, cut_draw, row, column = torch.rand(4).tolist()
        if mix_draw >= self.prob:
            return inputs, targets
        partners, use_cutmix = inputs.flip(0), cut_draw < self.switch_prob
        alpha = self.cutmix if use_cutmix else self.mixup
        weight = Beta(alpha, alpha).sample().item()
        if use_cutmix:
            height, width = inputs.shape[2:]
            side = math.sqrt(1 - weight)
            rows, columns = interval(height, side, row), interval(width, side, column)
            inputs = inputs.clone()
            inputs[:, :, rows, columns] = partners[:, :, rows, columns]
            weight = 1 - (rows.stop - rows.start) * (columns.stop - columns.start) / (height * width)
        else:
            inputs = inputs * weight + partners * (1 - weight)
        return inputs, targets * weight + targets.flip(0) * (1 - weight)


def interval(length: int, fraction: float, center: float) -> slice:
    """Returns a slice of ``fraction`` of the indices 0 … length − 1, centered at ``center`` (0 to 1 of the length).

    Indices below 0 or above length − 1 are cut off.
    """
    side, middle = int(length * fraction), int(length * center)
    return slice(max(0, middle - side // 2), min(length, middle + (side + 1) // 2))

"""Pictures mixed with others of their batch, and their targets with them: mixup and CutMix."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.distributions import Beta

from vitpos.errors import UserError
from vitpos.training.augment.base import Augment


class Mix(Augment):
    """Each picture with a share λ of itself and 1 − λ of its partner, blended (mixup) or as a box cut out (CutMix).

    A batch has one λ from Beta(α, α), with α ``mixup`` or ``cutmix``, CutMix with the probability ``switch`` if neither
    is 0, and is left alone with 1 − ``probability``. The partners are the batch in reverse, so the middle one of an odd
    batch is its own. A box has 1 − λ of the area around a random pixel; what the border cuts off goes back to λ, so
    that targets are shares of pixels. As timm's Mixup for whole batches (Zhang et al., 1710.09412; Yun et al., 1905.04899).
    """

    mixes = True

    def __init__(self, *, mixup: float = 0.8, cutmix: float = 1.0, probability: float = 1.0, switch: float = 0.5):
        if mixup < 0 or cutmix < 0 or mixup == cutmix == 0:
            raise UserError(f"augment 'mix' got mixup={mixup}, cutmix={cutmix}; both are 0 or more, and one is above 0")
        if not 0 <= probability <= 1 or not 0 <= switch <= 1:
            raise UserError(f"augment 'mix' got probability={probability}, switch={switch}; shares are from 0 to 1")
        self.mixup, self.cutmix, self.probability = mixup, cutmix, probability
        self.switch = switch if mixup and cutmix else float(cutmix > 0)

    def __call__(self, images: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """The mixed pictures and targets (B, classes)."""
        mixed, cut, row, column = torch.rand(4).tolist()
        if mixed >= self.probability:
            return images, targets
        partners, cutting = images.flip(0), cut < self.switch
        strength = self.cutmix if cutting else self.mixup
        share = Beta(strength, strength).sample().item()
        if cutting:
            height, width = images.shape[2:]
            side = math.sqrt(1 - share)
            rows, columns = interval(height, side, row), interval(width, side, column)
            images = images.clone()
            images[:, :, rows, columns] = partners[:, :, rows, columns]
            share = 1 - (rows.stop - rows.start) * (columns.stop - columns.start) / (height * width)
        else:
            images = images * share + partners * (1 - share)
        return images, targets * share + targets.flip(0) * (1 - share)


def interval(length: int, share: float, centre: float) -> slice:
    """The ``share`` of 0 … length − 1 that lies around a ``centre`` (0…1), as far as it is inside."""
    side, middle = int(length * share), int(length * centre)
    return slice(max(0, middle - side // 2), min(length, middle + (side + 1) // 2))

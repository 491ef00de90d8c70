"""RandAugment: a few random operations on each picture, all about equally strong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from vitpos.errors import UserError
from vitpos.training.augment import _ops
from vitpos.training.augment.base import Augment

STRONGEST = 10.0  # the largest magnitude


@dataclass(frozen=True)
class Operation:
    """A change of bytes by amounts (B,), and its amounts at magnitude 0 and at the largest."""

    change: Callable[[Tensor, Tensor], Tensor]
    least: float = 0.0
    most: float = 0.0
    signed: bool = False  # whether it goes either way

    def amount(self, level: Tensor, sign: Tensor) -> Tensor:
        """How much a ``level`` 0…1 (B,) is for it, in the direction of ``sign`` ±1 (B,)."""
        size = self.least + level * (self.most - self.least)
        return size * sign if self.signed else size


OPERATIONS = {  # timm's "increasing" ones
    "autocontrast": Operation(_ops.autocontrast),
    "equalize": Operation(_ops.equalize),
    "invert": Operation(_ops.invert),
    "rotate": Operation(_ops.rotate, 0, 30, signed=True),
    "posterize": Operation(_ops.posterize, 4, 8),
    "solarize": Operation(_ops.solarize, 0, 256),
    "lighten": Operation(_ops.lighten, 0, 110),
    "colour": Operation(_ops.colour, 0, 0.9, signed=True),
    "contrast": Operation(_ops.contrast, 0, 0.9, signed=True),
    "brightness": Operation(_ops.brightness, 0, 0.9, signed=True),
    "sharpness": Operation(_ops.sharpness, 0, 0.9, signed=True),
    "shear_x": Operation(_ops.shear_x, 0, 0.3, signed=True),
    "shear_y": Operation(_ops.shear_y, 0, 0.3, signed=True),
    "translate_x": Operation(_ops.translate_x, 0, 0.45, signed=True),
    "translate_y": Operation(_ops.translate_y, 0, 0.45, signed=True),
}


class RandAugment(Augment):
    """So many random ``operations`` on each picture, one after the other, each done with ``probability``.

    Magnitudes are from N(``magnitude``, ``deviation``²), at least 0 and at most 10. The default is timm's
    "rand-m9-mstd0.5-inc1", which DeiT and MJP train with, but that moved pictures are read bilinearly and stand on
    128, where DeiT reads bicubically and fills with ImageNet's mean colour (Cubuk et al., 1909.13719).
    """

    def __init__(
        self, *, magnitude: float = 9.0, deviation: float = 0.5, operations: int = 2, probability: float = 0.5
    ):
        if not 0 <= magnitude <= STRONGEST or deviation < 0:
            raise UserError(
                f"augment 'randaugment' got magnitude={magnitude}, deviation={deviation}; "
                f"magnitudes are from 0 to {STRONGEST:g}, deviations 0 or more"
            )
        if operations < 0 or not 0 <= probability <= 1:
            raise UserError(
                f"augment 'randaugment' got operations={operations}, probability={probability}; "
                "give 0 or more operations and a share from 0 to 1"
            )
        self.magnitude, self.deviation = magnitude, deviation
        self.operations, self.probability = operations, probability

    def paint(self, images: Tensor) -> Tensor:
        """The pictures after all rounds."""
        if images.shape[1] not in (1, 3):
            raise UserError(f"augment 'randaugment' takes grey or coloured pictures, not {images.shape[1]} channels")
        for _ in range(self.operations):
            images = self.once(images)
        return images

    def once(self, images: Tensor) -> Tensor:
        """The pictures after one operation each, or none."""
        count, device = len(images), images.device
        drawn = torch.randint(len(OPERATIONS), (count,), device=device)
        chance, side = torch.rand(2, count, device=device)
        magnitude = self.magnitude + self.deviation * torch.randn(count, device=device)
        level, sign = magnitude.clamp(0, STRONGEST) / STRONGEST, torch.where(side < 0.5, -1.0, 1.0)
        images = images.clone()
        for number, operation in enumerate(OPERATIONS.values()):
            which = ((drawn == number) & (chance < self.probability)).nonzero()[:, 0]
            if len(which):
                images[which] = operation.change(images[which], operation.amount(level[which], sign[which]))
        return images

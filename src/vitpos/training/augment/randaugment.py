"""RandAugment (Cubuk et al., 1909.13719): a few random operations per image, all of about the same strength."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from vitpos.errors import InputError
from vitpos.training.augment import _ops
from vitpos.training.augment.base import Augment

MAX_MAGNITUDE = 10.0


@dataclass(frozen=True)
class Operation:
    """An operation of RandAugment and its range of strengths.

    Args:
        apply: Called with uint8 images (B, C, height, width) and the amount of the change for each (B,), in a unit that
            depends on the operation, such as degrees; returns the changed images.
        low: Amount at magnitude 0.
        high: Amount at the maximum magnitude, 10.
        signed: Whether the amount gets a random sign.
    """

    apply: Callable[[Tensor, Tensor], Tensor]
    low: float = 0.0
    high: float = 0.0
    signed: bool = False  # whether the amount gets a random sign

    def amount(self, level: Tensor, sign: Tensor) -> Tensor:
        """Returns the amounts of the change (B,) for strengths ``level`` (B,) from 0 to 1: linear from ``low`` to ``high``.

        If the operation is signed, the amounts are multiplied by ``sign`` (B,), which is ±1.
        """
        size = self.low + level * (self.high - self.low)
        return size * sign if self.signed else size


OPERATIONS = {  # timm's "increasing" operations
    "autocontrast": Operation(_ops.autocontrast),
    "equalize": Operation(_ops.equalize),
    "invert": Operation(_ops.invert),
    "rotate": Operation(_ops.rotate, 0, 30, signed=True),
    "posterize": Operation(_ops.posterize, 4, 8),
    "solarize": Operation(_ops.solarize, 0, 256),
    "solarize_add": Operation(_ops.solarize_add, 0, 110),
    "saturation": Operation(_ops.saturation, 0, 0.9, signed=True),
    "contrast": Operation(_ops.contrast, 0, 0.9, signed=True),
    "brightness": Operation(_ops.brightness, 0, 0.9, signed=True),
    "sharpness": Operation(_ops.sharpness, 0, 0.9, signed=True),
    "shear_x": Operation(_ops.shear_x, 0, 0.3, signed=True),
    "shear_y": Operation(_ops.shear_y, 0, 0.3, signed=True),
    "translate_x": Operation(_ops.translate_x, 0, 0.45, signed=True),
    "translate_y": Operation(_ops.translate_y, 0, 0.45, signed=True),
}


class RandAugment(Augment):
    """Applies random operations to each image, one after the other.

    The default is timm's "rand-m9-mstd0.5-inc1", which DeiT and MJP train with, with two differences: geometric
    operations interpolate bilinearly and fill with gray 128, where DeiT interpolates bicubically and fills with
    ImageNet's mean color.

    Args:
        magnitude: Mean magnitude, 0 to 10.
        magnitude_std: Std of the magnitudes, which are normal and clamped to 0…10.
        num_ops: Number of operations per image.
        prob: Probability that an operation is applied.
    """

    def __init__(self, *, magnitude: float = 9.0, magnitude_std: float = 0.5, num_ops: int = 2, prob: float = 0.5):
        if not 0 <= magnitude <= MAX_MAGNITUDE or magnitude_std < 0:
            raise InputError(
                f"augmentation 'randaugment' got magnitude={magnitude}, magnitude_std={magnitude_std}; "
                f"give a magnitude from 0 to {MAX_MAGNITUDE:g} and a std of 0 or more"
            )
        if num_ops < 0 or not 0 <= prob <= 1:
            raise InputError(
                f"augmentation 'randaugment' got num_ops={num_ops}, prob={prob}; "
                "give 0 or more operations and a probability from 0 to 1"
            )
        self.magnitude, self.magnitude_std = magnitude, magnitude_std
        self.num_ops, self.prob = num_ops, prob

    def on_uint8(self, images: Tensor) -> Tensor:
        """Applies ``num_ops`` random operations, one after the other, to each of the uint8 images (B, C, height, width)."""
        if images.shape[1] not in (1, 3):
            raise InputError(
                f"augmentation 'randaugment' takes grayscale or RGB images, not {images.shape[1]} channels"
            )
        for _ in range(self.num_ops):
            images = self.apply_one(images)
        return images

    def apply_one(self, images: Tensor) -> Tensor:
        """Applies, with probability ``prob``, one random operation to each of the uint8 images (B, C, height, width)."""
        count, device = len(images), images.device
        choice = torch.randint(len(OPERATIONS), (count,), device=device)
        chance, side = torch.rand(2, count, device=device)
        magnitude = self.magnitude + self.magnitude_std * torch.randn(count, device=device)
        level, sign = magnitude.clamp(0, MAX_MAGNITUDE) / MAX_MAGNITUDE, torch.where(side < 0.5, -1.0, 1.0)
        images = images.clone()
        for number, operation in enumerate(OPERATIONS.values()):
            which = ((choice == number) & (chance < self.prob)).nonzero()[:, 0]
            if len(which):
                images[which] = operation.apply(images[which], operation.amount(level[which], sign[which]))
        return images

"""Pictures of one set in the shape of another's."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from vitpos.errors import UserError

LUMA = (0.299, 0.587, 0.114)  # shares of red, green and blue in a grey picture (ITU-R BT.601, as Pillow)


def in_shape(images: Tensor, shape: tuple[int, int, int]) -> Tensor:
    """Bytes (n, C, height, width) as bytes of another ``shape`` (C, height, width).

    Grey is repeated for each colour, colours are weighed into one grey; pictures are resized bilinearly, antialiased when
    they shrink, and stretched where the aspect differs.
    """
    channels, *size = shape
    if images.shape[1] != channels:
        if {images.shape[1], channels} != {1, 3}:
            raise UserError(
                f"pictures of {images.shape[1]} channels cannot be shown in {channels}; take grey or coloured ones"
            )
        images = images.expand(-1, 3, -1, -1) if channels == 3 else grey(images.float()).round_().to(torch.uint8)
    return images if list(images.shape[2:]) == size else stretched(images, (size[0], size[1]))


def grey(pixels: Tensor) -> Tensor:
    """How bright each pixel is (n, 1, height, width), of numbers (n, C, height, width)."""
    if pixels.shape[1] == 1:
        return pixels
    red, green, blue = pixels.split(1, 1)
    return red.mul(LUMA[0]).add_(green, alpha=LUMA[1]).add_(blue, alpha=LUMA[2])


def stretched(images: Tensor, size: tuple[int, int]) -> Tensor:
    """Bytes resized bilinearly to another height and width, antialiased when they shrink."""
    other = F.interpolate(images.float(), size=size, mode="bilinear", antialias=True, align_corners=False)
    return other.round_().clamp_(0, 255).to(torch.uint8)

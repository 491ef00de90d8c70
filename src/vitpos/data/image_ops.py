"""Resizing of uint8 images and conversion between grayscale and RGB."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from vitpos.errors import InputError

LUMA = (0.299, 0.587, 0.114)  # weights of red, green and blue (ITU-R BT.601, as in Pillow)
LUMA_16_BIT = (19595, 38470, 7471)  # the same weights times 2¹⁶, with which Pillow computes in integers


def to_shape(images: Tensor, shape: tuple[int, int, int]) -> Tensor:
    """Converts uint8 images (n, C, height, width) to another ``shape`` (C, height, width).

    Grayscale is repeated in three channels, RGB becomes its luma. Images are resized bilinearly without keeping their
    aspect ratio, with antialiasing when they shrink.
    """
    channels, *size = shape
    if images.shape[1] != channels:
        if {images.shape[1], channels} != {1, 3}:
            raise InputError(
                f"images of {images.shape[1]} channels cannot be converted to {channels}; take grayscale or RGB images"
            )
        images = images.expand(-1, 3, -1, -1) if channels == 3 else to_gray(images.float()).round_().to(torch.uint8)
    return images if list(images.shape[2:]) == size else resize(images, (size[0], size[1]))


def to_gray(images: Tensor) -> Tensor:
    """Returns the luma (n, 1, height, width) of grayscale or RGB images (n, C, height, width).

    Float images give floats. uint8 images give int32, rounded exactly as Pillow does.
    """
    exact = images.dtype == torch.uint8
    if images.shape[1] == 1:
        return images.int() if exact else images
    if exact:
        weights = torch.tensor(LUMA_16_BIT, device=images.device, dtype=torch.int).view(3, 1, 1)
        return (images.int() * weights).sum(1, keepdim=True).add(2**15) >> 16
    red, green, blue = images.split(1, 1)
    return red.mul(LUMA[0]).add_(green, alpha=LUMA[1]).add_(blue, alpha=LUMA[2])


def resize(images: Tensor, size: tuple[int, int]) -> Tensor:
    """Resizes uint8 images (n, C, height, width) bilinearly to ``size`` (height, width), antialiased when they shrink."""
    resized = F.interpolate(images.float(), size=size, mode="bilinear", antialias=True, align_corners=False)
    return resized.round_().clamp_(0, 255).to(torch.uint8)

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
        if channels == 1:
            weights = torch.tensor(LUMA, device=images.device).view(3, 1, 1)
            images = (images * weights).sum(1, keepdim=True).round().to(torch.uint8)
        else:
            images = images.expand(-1, 3, -1, -1)
    return images if list(images.shape[2:]) == size else stretched(images, (size[0], size[1]))


def stretched(images: Tensor, size: tuple[int, int]) -> Tensor:
    """Bytes resized bilinearly to another height and width, antialiased when they shrink."""
    other = F.interpolate(images.float(), size=size, mode="bilinear", antialias=True, align_corners=False)
    return other.round_().clamp_(0, 255).to(torch.uint8)

"""Input validation of the image metrics: two floating-point batches of the same shape."""

from __future__ import annotations

import torch
from torch import Tensor

from vitpos.errors import InputError


def check_image_pair(images: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Returns ``images`` and ``targets``, two batches (B, C, height, width) to compare, in a common dtype.

    The dtype is float32, or float64 if one of the two is. Raises ``InputError`` for integer tensors (values must lie in
    0…1) and for shapes that differ or are not 4-D.
    """
    for batch in (images, targets):
        if not batch.is_floating_point():
            raise InputError(f"image metrics take values from 0 to 1, not {batch.dtype}; divide bytes by 255")
    if images.shape != targets.shape or images.dim() != 4:
        raise InputError(
            f"image batches of shapes {tuple(images.shape)} and {tuple(targets.shape)} cannot be compared; "
            "both must be (batch, channels, height, width), and the same"
        )
    dtype = torch.promote_types(torch.promote_types(images.dtype, targets.dtype), torch.float32)
    return images.to(dtype), targets.to(dtype)

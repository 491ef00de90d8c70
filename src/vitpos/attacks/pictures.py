"""Two batches of pictures, found and true, that can be compared."""

from __future__ import annotations

import torch
from torch import Tensor

from vitpos.errors import UserError


def comparable(found: Tensor, true: Tensor) -> tuple[Tensor, Tensor]:
    """Both (B, C, height, width), checked, in the wider of their types and at least in float32."""
    for pictures in (found, true):
        if not pictures.is_floating_point():
            raise UserError(f"pictures are numbers from 0 to 1, not {pictures.dtype}; divide bytes by 255")
    if found.shape != true.shape or found.dim() != 4:
        raise UserError(
            f"pictures of shapes {tuple(found.shape)} and {tuple(true.shape)} cannot be compared; "
            "both must be (batch, channels, height, width), and the same"
        )
    kind = torch.promote_types(torch.promote_types(found.dtype, true.dtype), torch.float32)
    return found.to(kind), true.to(kind)

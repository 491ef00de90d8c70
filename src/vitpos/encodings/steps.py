"""Reading a short row of numbers at fractional steps."""

from __future__ import annotations

import torch
from torch import Tensor


def lookup(values: Tensor, at: Tensor) -> Tensor:
    """Values (B, H, N, M) known at steps 0 … M − 1, read at steps (B|1, H|1, N, K) between them → (B, H, N, K).

    Straight lines between neighbours; beyond either end the end repeats. At whole steps this gives the values exactly.
    The gradient reaches the values and the steps.
    """
    last = values.shape[-1] - 1
    at = at.to(values.dtype).clamp(0, last)
    low = at.detach().floor()
    index = low.long().expand(*values.shape[:3], -1)
    below = values.gather(3, index)
    above = values.gather(3, (index + 1).clamp_max(last))
    return torch.lerp(below, above, (at - low).expand_as(below))

"""Reading a short row of numbers at fractional steps."""

from __future__ import annotations

import torch
from torch import Tensor


def lookup(values: Tensor, at: Tensor) -> Tensor:
    """Values (…, M) known at steps 0 … M − 1, read at steps (…|1, K) between them → (…, K).

    Straight lines between neighbours; beyond either end the end repeats. At whole steps this gives the values exactly.
    The gradient reaches the values and the steps.
    """
    last = values.shape[-1] - 1
    at = at.to(values.dtype).clamp(0, last)
    low = at.detach().floor().clamp_(max=max(last - 1, 0))
    index = low.long().expand(*values.shape[:-1], -1)
    below, above = values.gather(-1, index), values[..., min(last, 1) :].gather(-1, index)
    return torch.lerp(below, above, (at - low).expand_as(below))

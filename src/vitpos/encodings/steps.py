"""Reading a short row of numbers at fractional steps."""

from __future__ import annotations

import torch
from torch import Tensor


def lookup(values: Tensor, at: Tensor) -> Tensor:
    """Values (…, M) known at steps 0 … M − 1, read at steps (…|1, K) between them → (…, K).

    Straight lines between neighbours; beyond either end the end repeats. At whole steps this gives the values exactly.
    The gradient reaches the values and the steps.
    """
    return read(values, *between(at.to(values.dtype), values.shape[-1]))


def between(at: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The whole step below each of some steps, of 0 … count − 1, and how far it is from there to the next one."""
    at = at.clamp(0, count - 1)
    low = at.detach().floor().clamp_(max=max(count - 2, 0))
    return low.long(), at - low


def read(values: Tensor, index: Tensor, share: Tensor | None) -> Tensor:
    """Values (…, M) at steps (…|1, K) and shares of the way to the next, or at the steps themselves."""
    index = index.expand(*values.shape[:-1], -1)
    below = values.gather(-1, index)
    if share is None:
        return below
    return torch.lerp(below, values[..., min(values.shape[-1] - 1, 1) :].gather(-1, index), share.expand_as(below))

"""Linear interpolation in a 1-D table."""

from __future__ import annotations

import torch
from torch import Tensor


def interp1d(values: Tensor, at: Tensor) -> Tensor:
    """Interpolates values (…, M) at steps 0 … M − 1 linearly at fractional steps ``at`` (…|1, K) → (…, K).

    Beyond either end the end value is repeated. Differentiable with respect to the values and the steps.
    """
    return gather1d(values, *floor_and_weight(at.to(values.dtype), values.shape[-1]))


def floor_and_weight(at: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Returns the whole step below each of ``at``, clamped to 0 … count − 2, and the weight of the next step."""
    at = at.clamp(0, count - 1)
    low = at.detach().floor().clamp_(max=max(count - 2, 0))
    return low.long(), at - low


def gather1d(values: Tensor, index: Tensor, weight: Tensor | None) -> Tensor:
    """Reads values (…, M) at whole steps ``index`` (…|1, K), or between them and the next with a weight from 0 to 1."""
    index = index.expand(*values.shape[:-1], -1)
    below = values.gather(-1, index)
    if weight is None:
        return below
    return torch.lerp(below, values[..., min(values.shape[-1] - 1, 1) :].gather(-1, index), weight.expand_as(below))

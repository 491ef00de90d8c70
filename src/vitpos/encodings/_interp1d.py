"""Linear interpolation in a 1-D table."""

from __future__ import annotations

import torch
from torch import Tensor


def interp1d(values: Tensor, at: Tensor) -> Tensor:
    """Interpolates values (…, M), given at 0, 1, …, M − 1, linearly at fractional positions ``at`` (…|1, K): (…, K).

    Beyond either end the end value is repeated. Differentiable with respect to ``values`` and ``at``.
    """
    wide = torch.promote_types(values.dtype, torch.float32)
    index, weight = floor_and_weight(at.to(wide), values.shape[-1])
    return gather1d(values, index, weight.to(values.dtype))


def floor_and_weight(at: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Returns (index, weight) for linear interpolation in ``count`` values, both in the shape of the positions ``at``.

    The index is ``at`` rounded down and clamped to 0 … count − 2; the weight, 0 to 1, is that of the value at index + 1.
    """
    at = at.clamp(0, count - 1)
    low = at.detach().floor().clamp_(max=max(count - 2, 0))
    return low.long(), at - low


def gather1d(values: Tensor, index: Tensor, weight: Tensor | None) -> Tensor:
    """Returns values (…, M) at integer positions ``index`` (…|1, K): (…, K).

    With ``weight`` (…|1, K), 0 to 1, interpolates linearly between each position (weight 0) and the next (weight 1).
    """
    index = index.expand(*values.shape[:-1], -1)
    below = values.gather(-1, index)
    if weight is None:
        return below
    return torch.lerp(below, values[..., min(values.shape[-1] - 1, 1) :].gather(-1, index), weight.expand_as(below))

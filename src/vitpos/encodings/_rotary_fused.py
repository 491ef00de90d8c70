"""The fast form of the rotation of channel pairs, which swaps no channels; `_rotary.rotate_pairs_plain` is the plain form.

Forward alone, ``benchmarks/encodings.py --alone`` gives the ratio of both to the rotation of timm.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


class RotatePairs(torch.autograd.Function):
    """Computes y_t = cos_t·x_t + after_t·x_(t+1) + before_t·x_(t−1) along the last dimension, in three in-place passes.

    The factors broadcast over x; the last value of ``after`` and the first of ``before`` must be zero.
    """

    generate_vmap_rule = True  # for per-image gradients

    @staticmethod
    def forward(x: Tensor, cos: Tensor, after: Tensor, before: Tensor) -> Tensor:
        """Returns the rotated x (…, N, d)."""
        y = x * cos
        y[..., :-1].addcmul_(x[..., 1:], after[..., :-1])
        y[..., 1:].addcmul_(x[..., :-1], before[..., 1:])
        return y

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        """Saves the inputs for the backward pass."""
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Applies the transposed operation, with the factors of the two neighbors exchanged."""
        (x, cos, after, before), gradient = ctx.saved_tensors, gradients[0]
        back = RotatePairs.apply(gradient, cos, F.pad(before[..., 1:], (0, 1)), F.pad(after[..., :-1], (1, 0)))
        factors: list[Tensor | None] = [None, None, None]
        if any(ctx.needs_input_grad[1:]):
            padded = F.pad(x, (1, 1))
            factors = [(gradient * y).sum_to_size(cos.shape) for y in (x, padded[..., 2:], padded[..., :-2])]
        return back, *factors

"""A fast rotation of channel pairs, without swapping channels; `_rotary.rotate_pairs_plain` is the readable form.

``benchmarks/encodings.py --alone`` compares the time of both with the rotation of timm.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


class RotatePairs(torch.autograd.Function):
    """Rotates pairs of neighboring channels: y_c = cos_c·x_c + after_c·x_(c+1) + before_c·x_(c−1) for each channel c of x.

    The factors ``cos``, ``after`` and ``before`` (sines, or zero) broadcast over x (…, N, d). The last channel of
    ``after`` and the first of ``before`` are not used, because there is no neighbor.
    """

    generate_vmap_rule = True  # for per-image gradients

    @staticmethod
    def forward(x: Tensor, cos: Tensor, after: Tensor, before: Tensor) -> Tensor:
        """Returns y (…, N, d) with y_c = cos_c·x_c + after_c·x_(c+1) + before_c·x_(c−1) for each channel c of x (…, N, d).

        ``cos``, ``after`` and ``before`` are the factors of a channel, the next and the previous one; they broadcast
        over x.
        """
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
        """Returns the gradients of the loss with respect to the inputs x, cos, after and before.

        ``gradients`` has one entry, the gradient with respect to the output. For x it is rotated back: the same
        operation with the factors of the next and of the previous channel exchanged. The gradients of the factors are
        None if no factor requires one.
        """
        (x, cos, after, before), gradient = ctx.saved_tensors, gradients[0]
        back = RotatePairs.apply(gradient, cos, F.pad(before[..., 1:], (0, 1)), F.pad(after[..., :-1], (1, 0)))
        factors: list[Tensor | None] = [None, None, None]
        if any(ctx.needs_input_grad[1:]):
            padded = F.pad(x, (1, 1))
            factors = [(gradient * y).sum_to_size(cos.shape) for y in (x, padded[..., 2:], padded[..., :-2])]
        return back, *factors

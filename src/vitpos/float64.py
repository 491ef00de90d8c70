"""Computations in float64 on devices that have it, and on the CPU for tensors of a device without it (MPS)."""

from __future__ import annotations

import torch
from torch import Tensor


def float64_device(device: torch.device) -> torch.device:
    """Returns the device on which tensors of ``device`` are computed in float64: the same one, or the CPU for MPS."""
    return torch.device("cpu") if device.type == "mps" else device


def to_float64(x: Tensor) -> Tensor:
    """Returns a tensor in float64, on its `float64_device`."""
    return x.to(float64_device(x.device)).double()  # in this order: MPS cannot convert to float64

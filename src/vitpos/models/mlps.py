"""The MLPs of transformer blocks, each built as ``mlp(dim, hidden)`` with ``hidden`` inner channels."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn


def gelu(dim: int, hidden: int) -> nn.Sequential:
    """Two linear layers with GELU between them."""
    return nn.Sequential(nn.Linear(dim, hidden), nn.GELU(), nn.Linear(hidden, dim))


def gelu_tanh(dim: int, hidden: int) -> nn.Sequential:
    """Two linear layers with the tanh approximation of GELU between them (SigLIP)."""
    return nn.Sequential(nn.Linear(dim, hidden), nn.GELU(approximate="tanh"), nn.Linear(hidden, dim))


def quick_gelu(dim: int, hidden: int) -> nn.Sequential:
    """Two linear layers with x·sigmoid(1.702·x) between them (OpenAI's CLIP)."""
    return nn.Sequential(nn.Linear(dim, hidden), QuickGELU(), nn.Linear(hidden, dim))


class QuickGELU(nn.Module):
    """The activation x·sigmoid(1.702·x)."""

    def forward(self, x: Tensor) -> Tensor:
        """Returns x·sigmoid(1.702·x), elementwise."""
        return x * torch.sigmoid(1.702 * x)


class SwiGLU(nn.Module):
    """A gated MLP: fc2(act(g)·u), where the first linear layer ``fc1`` gives g and u, ``hidden`` channels each.

    Args:
        activation: Activation of the gate g: ``silu`` (DINOv2, EVA-02, DINOv3 in timm), or ``gelu``.
        norm: Applies a LayerNorm before the last linear layer (EVA-02).
        eps: Number added to the variance in that norm.
    """

    def __init__(
        self,
        dim: int,
        hidden: int,
        *,
        activation: Literal["silu", "gelu"] = "silu",
        norm: bool = False,
        eps: float = 1e-6,
    ):
        super().__init__()
        self.activation = nn.SiLU() if activation == "silu" else nn.GELU()
        self.fc1 = nn.Linear(dim, 2 * hidden)  # first the gate g, then u
        self.norm = nn.LayerNorm(hidden, eps=eps) if norm else None
        self.fc2 = nn.Linear(hidden, dim)

    def forward(self, x: Tensor) -> Tensor:
        """Returns the tokens (B, T, D) after the MLP, for tokens x (B, T, D)."""
        gate, value = self.fc1(x).chunk(2, -1)
        y = self.activation(gate) * value
        return self.fc2(y if self.norm is None else self.norm(y))

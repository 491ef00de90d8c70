"""The one loss: cross-entropy plus the penalty of the position encoding."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from vitpos.models.base import Classifier
from vitpos.positions import Positions


def loss(
    model: Classifier,
    inputs: Tensor,
    targets: Tensor,
    positions: Positions | None = None,
    label_smoothing: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """The mean cross-entropy over a batch plus the encoding's penalty, and the logits (B, classes).

    Args:
        inputs: normalized images (B, C, height, width).
        targets: labels (B,), or probabilities (B, classes) where images are mixed.
        positions: where the patches are; by default those of the grid.
    """
    logits, penalty = model.step(inputs, positions)
    return F.cross_entropy(logits, targets, label_smoothing=label_smoothing) + penalty, logits

"""The loss of all training: cross-entropy plus the penalty of the position encoding."""

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
    """Returns the loss, a scalar, and the logits (B, classes) of a batch.

    The loss is the mean cross-entropy plus the penalty of the position encoding, a loss of its own that some encodings add.

    Args:
        model: The model.
        inputs: Normalized images (B, C, height, width).
        targets: Labels (B,), or probabilities (B, classes) of mixed images.
        positions: Positions of the patches; those of the grid by default.
        label_smoothing: As in :func:`torch.nn.functional.cross_entropy`.
    """
    logits, penalty = model.forward_with_penalty(inputs, positions)
    return F.cross_entropy(logits, targets, label_smoothing=label_smoothing) + penalty, logits

"""The predictions that evaluations are made of."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from vitpos.data.base import Dataset
from vitpos.models.base import Classifier
from vitpos.positions import Positions

Change = Callable[[Tensor, int], tuple[Tensor, Positions | None]]  # images, index of the first → images, their places


def predict(model: Classifier, data: Dataset, change: Change | None = None, *, batch: int = 500) -> Tensor:
    """(n, classes) logits of the test images, each batch first passed through ``change``."""
    model.eval()
    device = next(model.parameters(), torch.empty(0)).device
    logits = []
    with torch.inference_mode():
        for start in range(0, len(data.test), batch):
            images = data.test.images[start : start + batch]
            changed, positions = change(images, start) if change else (images, None)
            answers = model(data.inputs(changed.to(device)), positions.to(device) if positions else None)
            logits.append(answers.cpu())
    return torch.cat(logits)


def share(right: Tensor) -> float:
    """The share of True, from 0 to 1."""
    return right.double().mean().item()

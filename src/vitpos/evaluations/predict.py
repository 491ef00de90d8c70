"""The predictions that evaluations are made of."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import Tensor

from vitpos.data.dataset import Dataset
from vitpos.models.base import Classifier
from vitpos.positions import Positions

Change = Callable[[Tensor, int], tuple[Tensor, Positions | None]]  # images, index of the first → images, their places
Key = TypeVar("Key", bound=Hashable)


def predict(model: Classifier, data: Dataset, change: Change | None = None, *, batch: int = 128) -> Tensor:
    """(n, classes) logits of the test images, each batch first passed through ``change``."""
    return respond(model, data, change, batch=batch)[1]


def respond(
    model: Classifier, data: Dataset, change: Change | None = None, *, batch: int = 128
) -> tuple[Tensor, Tensor]:
    """What the head reads (n, D) of the test images, each batch first passed through ``change``, and what it says."""
    model.eval()
    key = (id(model), id(data))
    if change is None and _known is not None and key in _known:
        return _known[key][1]
    with torch.inference_mode():
        passes = [_asked(model, data, *some, change) for some in _batches(model, data, batch)]
    read, said = zip(*passes, strict=True)
    found = torch.cat(read), torch.cat(said)
    if change is None and _known is not None:
        _known[key] = (model, data), found  # kept with them, so that no other object can come by their ids
    return found


def answers(model: Classifier, data: Dataset, changes: Mapping[Key, Change], *, batch: int = 128) -> dict[Key, Tensor]:
    """The class (n,) that the model tells of the test images under each change; every image is read once."""
    model.eval()
    told: dict[Key, list[Tensor]] = {key: [] for key in changes}
    with torch.inference_mode():
        for images, start in _batches(model, data, batch):
            for key, change in changes.items():
                told[key].append(_asked(model, data, images, start, change)[1].argmax(1))
    return {key: torch.cat(parts) for key, parts in told.items()}


def _batches(model: Classifier, data: Dataset, batch: int) -> Iterator[tuple[Tensor, int]]:
    """The test images as bytes, on the model's device, each batch with the index of its first."""
    device = next(model.parameters(), torch.empty(0)).device
    for start in range(0, len(data.test), batch):
        yield data.test.images[start : start + batch].to(device), start


def _asked(
    model: Classifier, data: Dataset, images: Tensor, start: int, change: Change | None
) -> tuple[Tensor, Tensor]:
    """What the head reads (B, D) of one batch, passed through ``change``, and what it says (B, classes)."""
    changed, positions = change(images, start) if change else (images, None)
    features = model.features(data.normalize(changed), positions.to(images.device) if positions else None)
    return features.cpu(), model.head(features).cpu()


_known: dict[tuple[int, int], tuple[tuple[Classifier, Dataset], tuple[Tensor, Tensor]]] | None = None


@contextmanager
def remembering() -> Iterator[None]:
    """While this lasts, the answers on unchanged images are found once; no weight may change meanwhile."""
    global _known
    _known = {}
    try:
        yield
    finally:
        _known = None


def share(right: Tensor) -> float:
    """The share of True, from 0 to 1."""
    return right.double().mean().item()

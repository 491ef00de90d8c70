"""Features, logits and predicted classes of the test images, unchanged or transformed."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import TypeVar

import torch
from torch import Tensor

from vitpos.data.dataset import Dataset
from vitpos.models.base import Classifier
from vitpos.positions import Positions

Transform = Callable[[Tensor, int], tuple[Tensor, Positions | None]]  # images, index of the first → images, positions
Key = TypeVar("Key", bound=Hashable)
BATCH = 128


def features_and_logits(model: Classifier, data: Dataset, transform: Transform | None = None) -> tuple[Tensor, Tensor]:
    """Returns features (n, D), which enter the classification head, and logits (n, classes) of the n test images.

    Args:
        transform: Called with each batch of uint8 images and the index of its first image; returns the images and the
            positions that the model gets (None: the default positions of the patch grid).
    """
    model.eval()
    with torch.inference_mode():
        passes = [_forward(model, data, *batch, transform) for batch in test_batches(model, data)]
    features, logits = zip(*passes, strict=True)
    return torch.cat(features), torch.cat(logits)


def predict_classes(model: Classifier, data: Dataset, transforms: Mapping[Key, Transform]) -> dict[Key, Tensor]:
    """Returns the predicted classes (n,) of the n test images under each transform, as key → classes.

    Every image is loaded once.

    Args:
        transforms: Key → function that is called with each batch of uint8 images and the index of its first image, and
            returns the images and the positions that the model gets (None: the default positions of the patch grid).
    """
    model.eval()
    predicted: dict[Key, list[Tensor]] = {key: [] for key in transforms}
    with torch.inference_mode():
        for images, start in test_batches(model, data):
            for key, transform in transforms.items():
                predicted[key].append(_forward(model, data, images, start, transform)[1].argmax(1))
    return {key: torch.cat(parts) for key, parts in predicted.items()}


def test_batches(model: Classifier, data: Dataset) -> Iterator[tuple[Tensor, int]]:
    """Yields the test images in batches: uint8 (B, C, height, width) on the model's device, and the index of the first."""
    for start in range(0, len(data.test), BATCH):
        yield data.test.images[start : start + BATCH].to(model.device), start


def _forward(
    model: Classifier, data: Dataset, images: Tensor, start: int, transform: Transform | None
) -> tuple[Tensor, Tensor]:
    """Applies ``transform`` to one batch of uint8 images; returns its features (B, D) and logits (B, classes) on the CPU.

    ``transform(images, start)`` returns the images and positions that the model gets; if it is None, nothing is changed.
    ``start`` is the index of the first image of the batch in the test split.
    """
    changed, positions = transform(images, start) if transform else (images, None)
    features = model.forward_features(data.normalize(changed), positions.to(images.device) if positions else None)
    return features.cpu(), model.head(features).cpu()


def fraction_true(values: Tensor) -> float:
    """Returns the fraction of True values in a bool tensor, 0 to 1."""
    return values.double().mean().item()


def consistency(logits: Tensor, original: Tensor, labels: Tensor) -> dict[str, float]:
    """Compares predictions on changed images with labels and with predictions on the original images.

    Returns three fractions of the n images, 0 to 1: ``accuracy`` (predicted correctly), ``consistency`` (predicted as the
    same class as the original image) and ``consistent_correct`` (both).

    Args:
        logits: (n, classes), of the changed images.
        original: (n, classes), of the original images.
        labels: (n,), class numbers.
    """
    predicted = logits.argmax(1)
    correct, same = predicted == labels, predicted == original.argmax(1)
    return {
        "accuracy": fraction_true(correct),
        "consistency": fraction_true(same),
        "consistent_correct": fraction_true(correct & same),
    }

"""Compares a converted model with the original on images: how much its predictions have changed."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from vitpos.data.dataset import Dataset
from vitpos.data.image_ops import to_shape
from vitpos.errors import InputError
from vitpos.evaluations.predict import fraction_true, test_batches
from vitpos.interop.class_names import IMAGENET, OutputNames, imagenet_names, match_classes
from vitpos.models.base import Classifier, Shape

IMAGES = 512  # test images that are compared


def predict(model: Classifier, data: Dataset, shape: Shape) -> Tensor:
    """Returns the logits (n, classes) of the test images, resized to ``shape`` (C, height, width)."""
    training = model.training
    model.eval()
    dtype = next(model.parameters()).dtype
    try:
        with torch.inference_mode():
            logits = [
                model(prepare(data, images, shape).to(dtype)).cpu().float() for images, _ in test_batches(model, data)
            ]
    finally:
        model.train(training)
    return torch.cat(logits)


def prepare(data: Dataset, images: Tensor, shape: Shape) -> Tensor:
    """Returns normalized inputs of ``shape`` from uint8 images of a data set; grayscale and RGB are converted."""
    resized = to_shape(images, shape)
    if resized.shape[1] == len(data.mean):
        return data.normalize(resized)
    mean, std = (sum(values) / len(values) for values in (data.mean, data.std))
    return (resized.float() / 255 - mean) / std


def drift(before: Tensor, after: Tensor, labels: Tensor | None, *, features: bool = False) -> dict[str, float]:
    """Compares the outputs (n, classes) of an original and a converted model on the same images.

    Returns ``agreement``, the fraction of images with the same predicted class; ``kl``, the mean Kullback-Leibler
    divergence of the predicted probabilities in nats; ``cosine``, the mean cosine similarity of the logits; and, with
    ``labels`` (n,), the accuracies ``accuracy_before`` and ``accuracy_after``. If the outputs are ``features`` instead of
    logits, it returns ``cosine`` only.
    """
    cosine = {"cosine": F.cosine_similarity(before, after).mean().item()}
    if features:
        return cosine
    p, q = before.log_softmax(1), after.log_softmax(1)
    numbers = {
        "agreement": fraction_true(before.argmax(1) == after.argmax(1)),
        "kl": F.kl_div(q, p, log_target=True, reduction="batchmean").item(),
        **cosine,
    }
    if labels is not None:
        numbers["accuracy_before"] = fraction_true(before.argmax(1) == labels)
        numbers["accuracy_after"] = fraction_true(after.argmax(1) == labels)
    return numbers


def labels_if_known(outputs: int, class_names: Sequence[str], data: Dataset) -> Tensor | None:
    """Returns the output of the model that each test image should have as its largest; None if that is not known.

    The classes of the data are found among the names of the outputs; without names, classes and outputs have to be
    equally many, and correspond in order.

    Args:
        outputs: Number of outputs of the model.
        class_names: Their names; empty if they have none.
        data: Data set with the test images.
    """
    known = OutputNames(tuple((name,) for name in class_names), "the model") if class_names else None
    known = imagenet_names(known) if outputs == IMAGENET else known
    try:
        number = match_classes(data.classes, outputs, known, remedy="")
    except InputError:
        return None
    return torch.tensor(number)[data.test.labels.long()]

"""Accuracy and confidence on the test images that a simple classifier misclassifies."""

from __future__ import annotations

import torch
from torch import Tensor

from vitpos.data.dataset import Dataset
from vitpos.evaluations.context import EvalContext
from vitpos.evaluations.predict import fraction_true
from vitpos.evaluations.result import Result
from vitpos.metrics.calibration import response_rate_accuracy

BATCH = 1000  # images per step, for data sets that are decoded on demand


def hard_images(ctx: EvalContext) -> Result:
    """Accuracy and AURRA on hard test images: those that are nearer to the mean image of another class than to their own.

    A small counterpart of ImageNet-A (Hendrycks et al., CVPR 2021), whose photographs were kept because a ResNet-50
    misclassifies them; here the filter is a nearest-mean classifier on the pixels of the training images, the same
    for all models of a data set.

    accuracy: fraction of the hard images, 0 to 1, that the model predicts correctly.
    aurra: area under the response rate accuracy curve, the mean over k of the accuracy on the k hard images in which the
    model is most confident. fraction: fraction of the test images that are hard.
    """
    hard = nearest_mean(ctx.data) != ctx.data.test.labels
    if not hard.any():
        return Result(reason="a nearest-mean classifier predicts all test images correctly")
    best = ctx.predict_logits()[hard].double().softmax(1).max(1)
    correct = best.indices == ctx.data.test.labels[hard]
    return Result(
        {
            "accuracy": fraction_true(correct),
            "aurra": response_rate_accuracy(best.values, correct),
            "fraction": fraction_true(hard),
        }
    )


def nearest_mean(data: Dataset) -> Tensor:
    """Returns the class (n,) whose mean training image is nearest to each of the n test images, by Euclidean distance.

    Classes without a training image are never predicted.
    """
    sums = torch.zeros(len(data.classes), data.test.images[:1].numel(), dtype=torch.float64)
    for start in range(0, len(data.train), BATCH):
        chosen = slice(start, start + BATCH)
        sums.index_add_(0, data.train.labels[chosen], data.train.images[chosen].flatten(1).double())
    counts = torch.bincount(data.train.labels, minlength=len(data.classes))
    means = (sums / counts[:, None]).nan_to_num(nan=torch.inf)
    batches = range(0, len(data.test), BATCH)
    return torch.cat(
        [torch.cdist(data.test.images[start : start + BATCH].flatten(1).double(), means).argmin(1) for start in batches]
    )

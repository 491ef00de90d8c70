"""Metrics of confidence: calibration error and AURRA, for 1-D tensors over n images.

Images with tied confidence are counted together, so the order of the images never changes a result.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

BIN = 100  # images per bin of the calibration error


def response_rate_accuracy(confidence: Tensor, correct: Tensor) -> float:
    """Returns AURRA, the area under the response rate–accuracy curve.

    It is the mean over k = 1 … n of the accuracy on the k most confident images.

    Args:
        confidence: (n,), such as the largest softmax probability.
        correct: (n,) bool, whether the prediction is correct.
    """
    _, accuracy = _sorted_by_confidence(confidence, correct)
    return (accuracy.flip(0).cumsum(0) / torch.arange(1, len(accuracy) + 1)).mean().item()


def calibration_error(confidence: Tensor, correct: Tensor, *, all_bins: bool = False) -> float:
    """Returns the RMS calibration error √ Σ_b (n_b / n) · (mean confidence in b − accuracy in b)², bins b of 100 images.

    Bins are formed in order of confidence; n_b of the n images are in bin b. The last bin holds the most confident
    images and the remainder of the division; the code published with ImageNet-A leaves it out of the sum.

    Args:
        confidence: (n,), such as the largest softmax probability.
        correct: (n,) bool, whether the prediction is correct.
        all_bins: Include the last bin in the sum; by default it is left out, and fewer than 200 images give NaN.
    """
    ranked = torch.stack(_sorted_by_confidence(confidence, correct))  # (2, n)
    ends = torch.arange(1, max(len(correct) // BIN, 1)) * BIN
    bins = ranked.tensor_split(ends, dim=1)
    used = bins if all_bins else bins[:-1]
    if not used:
        return math.nan
    return math.sqrt(sum(b.shape[1] * (b[0].mean() - b[1].mean()).item() ** 2 for b in used) / max(len(correct), 1))


def _sorted_by_confidence(confidence: Tensor, correct: Tensor) -> tuple[Tensor, Tensor]:
    """Returns ascending confidences (n,), and for each the accuracy of all images with exactly that confidence (n,).

    ``correct`` (n,) is True for images that are predicted correctly.
    """
    ranked, index = confidence.double().sort(stable=True)
    _, group, sizes = ranked.unique_consecutive(return_inverse=True, return_counts=True)
    accuracy = torch.zeros(len(sizes), dtype=torch.float64).index_add_(0, group, correct[index].double()) / sizes
    return ranked, accuracy[group]

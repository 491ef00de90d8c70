"""Numbers about scores: do they find what is to be found, and is a confident answer a right one?

Ties are treated alike: what has the same score or confidence is taken all at once, or in the mean of all its orders, so
that the order of the images never matters.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

BIN = 100  # images in a bin of the calibration error


def average_precision(scores: Tensor, positive: Tensor) -> float:
    """Σ (recall_n − recall_{n−1}) · precision_n over the different scores (n,) from the highest: the area that AUPR means.

    ``positive`` (n,) says what is to be found by a high score. A score that says nothing gives the share of positives.
    """
    found, wrong = _counts(scores, positive)
    steps = found.diff(prepend=found.new_zeros(1)) / positive.sum()
    return (steps * found / (found + wrong)).sum().item()


def area_under_roc(scores: Tensor, positive: Tensor) -> float:
    """How often a positive scores higher than a negative, ties counting one half; a score that says nothing gives 1/2."""
    found, wrong = (torch.cat([x.new_zeros(1), x]) for x in _counts(scores, positive))
    return torch.trapezoid(found / positive.sum(), wrong / (~positive).sum()).item()


def false_positives(scores: Tensor, positive: Tensor, *, recall: float = 0.95) -> float:
    """The share of negatives at or above the highest threshold that finds ``recall`` of the positives."""
    found, wrong = _counts(scores, positive)
    enough = found / positive.sum() >= recall
    return (wrong[enough] / (~positive).sum()).min().item() if enough.any() else math.nan


def response_rate_accuracy(confidence: Tensor, right: Tensor) -> float:
    """The mean, over all numbers k of images answered, of the accuracy on the k most confident ones: AURRA."""
    _, right = _ranked(confidence, right)
    return (right.flip(0).cumsum(0) / torch.arange(1, len(right) + 1)).mean().item()


def calibration_error(confidence: Tensor, right: Tensor, *, whole: bool = False) -> float:
    """√ Σ_b (images in b / images) · (mean confidence in b − accuracy in b)² over bins of 100 images by confidence.

    The last bin, of the most confident, also holds what is left over, and the code published with ImageNet-A leaves it
    out of the sum; ``whole`` keeps it. NaN where no bin is left: without ``whole``, below 200 images.
    """
    ranked = torch.stack(_ranked(confidence, right))  # (2, n)
    ends = torch.arange(1, max(len(right) // BIN, 1)) * BIN
    bins = ranked.tensor_split(ends, dim=1)
    kept = bins if whole else bins[:-1]
    if not kept:
        return math.nan
    return math.sqrt(sum(b.shape[1] * (b[0].mean() - b[1].mean()).item() ** 2 for b in kept) / max(len(right), 1))


def _counts(scores: Tensor, positive: Tensor) -> tuple[Tensor, Tensor]:
    """Positives and negatives at or above each of the different scores, from the highest to the lowest."""
    ranked, index = scores.sort(descending=True)
    last = torch.cat([ranked.diff() != 0, torch.ones(min(len(ranked), 1), dtype=torch.bool)])
    found = positive[index].double().cumsum(0)[last]
    return found, last.nonzero()[:, 0] + 1 - found


def _ranked(confidence: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """Confidences from the lowest and, for each, the share of right answers among those as confident."""
    ranked, index = confidence.double().sort(stable=True)
    _, group, sizes = ranked.unique_consecutive(return_inverse=True, return_counts=True)
    shares = torch.zeros(len(sizes), dtype=torch.float64).index_add_(0, group, right[index].double()) / sizes
    return ranked, shares[group]

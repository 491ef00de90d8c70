"""Confusion matrix, and detection metrics: AUPR, AUROC and FPR at a recall.

All functions take 1-D tensors over n images. Images with tied scores are counted together, so the order of the images
never changes a result.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def confusion_matrix(labels: Tensor, predicted: Tensor, classes: int) -> Tensor:
    """Returns counts (classes, classes) of images or patches by true class (row) and predicted class (column).

    Args:
        labels, predicted: (n,), true and predicted class of each image or patch.
    """
    return torch.bincount(labels * classes + predicted, minlength=classes**2).view(classes, classes)


def average_precision(scores: Tensor, positive: Tensor) -> float:
    """Returns the area under the precision–recall curve, Σ_k (recall_k − recall_{k−1}) · precision_k.

    The thresholds k are the distinct scores from the highest to the lowest. Uninformative scores give the fraction of
    positives.

    Args:
        scores: (n,), higher for images that should be detected.
        positive: (n,) bool, True for the images to detect.
    """
    true_positives, false_positives = _cumulative_counts(scores, positive)
    recall_steps = true_positives.diff(prepend=true_positives.new_zeros(1)) / positive.sum()
    return (recall_steps * true_positives / (true_positives + false_positives)).sum().item()


def roc_auc(scores: Tensor, positive: Tensor) -> float:
    """Returns the area under the ROC curve: the probability that a positive scores above a negative, ties counting ½.

    Args:
        scores: (n,), higher for images that should be detected.
        positive: (n,) bool, True for the images to detect.
    """
    counts = _cumulative_counts(scores, positive)
    true_positives, false_positives = (torch.cat([x.new_zeros(1), x]) for x in counts)
    return torch.trapezoid(true_positives / positive.sum(), false_positives / (~positive).sum()).item()


def fpr_at_recall(scores: Tensor, positive: Tensor, *, recall: float = 0.95) -> float:
    """Returns the false positive rate at the highest threshold whose recall is at least ``recall`` (FPR95 by default).

    Args:
        scores: (n,), higher for images that should be detected.
        positive: (n,) bool, True for the images to detect.
    """
    true_positives, false_positives = _cumulative_counts(scores, positive)
    enough = true_positives / positive.sum() >= recall
    return (false_positives[enough] / (~positive).sum()).min().item() if enough.any() else math.nan


def _cumulative_counts(scores: Tensor, positive: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the numbers of true positives (k,) and of false positives (k,) at each threshold.

    The thresholds are the k distinct scores from the highest to the lowest.

    Args:
        scores: (n,), higher for images that should be detected.
        positive: (n,) bool, True for the images to detect.
    """
    ranked, index = scores.sort(descending=True)
    last = torch.cat([ranked.diff() != 0, torch.ones(min(len(ranked), 1), dtype=torch.bool)])
    true_positives = positive[index].double().cumsum(0)[last]
    return true_positives, last.nonzero()[:, 0] + 1 - true_positives

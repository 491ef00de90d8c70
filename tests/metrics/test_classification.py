"""Classification metrics against scikit-learn, published code and values computed by hand."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vitpos.metrics.classification import (
    average_precision,
    calibration_error,
    confusion_matrix,
    fpr_at_recall,
    response_rate_accuracy,
    roc_auc,
)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 6), st.booleans()), min_size=2, max_size=40))
def test_areas_and_fpr_equal_scikit_learn_also_with_ties(pairs):
    from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

    scores, positive = (torch.tensor(values) for values in zip(*pairs, strict=True))
    scores = scores.double() / 7
    if positive.all() or not positive.any():
        return
    assert average_precision(scores, positive) == pytest.approx(average_precision_score(positive, scores), abs=1e-12)
    assert roc_auc(scores, positive) == pytest.approx(roc_auc_score(positive, scores), abs=1e-12)
    fpr, recall, _ = roc_curve(positive, scores, drop_intermediate=False)
    assert fpr_at_recall(scores, positive) == pytest.approx(fpr[recall >= 0.95 - 1e-12].min())


def test_areas_of_many_random_scores_equal_scikit_learn():
    from sklearn.metrics import average_precision_score, roc_auc_score

    draw = torch.Generator().manual_seed(0)
    positive = torch.rand(5000, generator=draw) < 0.2
    scores = torch.randn(5000, generator=draw, dtype=torch.float64) + positive
    assert average_precision(scores, positive) == pytest.approx(average_precision_score(positive, scores), abs=1e-12)
    assert roc_auc(scores, positive) == pytest.approx(roc_auc_score(positive, scores), abs=1e-12)


def test_aurra_matches_values_computed_by_hand():
    confidence = torch.tensor([0.9, 0.5, 0.7, 0.6])
    correct = torch.tensor([True, False, False, True])
    # in order of confidence: correct, wrong, correct, wrong
    assert response_rate_accuracy(confidence, correct) == pytest.approx((1 + 1 / 2 + 2 / 3 + 2 / 4) / 4)
    tied = torch.tensor([0.9, 0.6, 0.6, 0.6])  # after the first, each is correct with probability 1/3
    assert response_rate_accuracy(tied, correct) == pytest.approx((1 + (4 / 3) / 2 + (5 / 3) / 3 + 2 / 4) / 4)
    assert response_rate_accuracy(torch.ones(4), correct) == 0.5, "an uninformative confidence gives the accuracy"


def reference(confidence, correct):
    """The calibration error of ImageNet-A's code: bins of 100, the last one with the remainder left out."""
    order = sorted(range(len(correct)), key=lambda i: confidence[i])
    total = 0.0
    for index in range(len(correct) // 100 - 1):
        members = order[index * 100 : index * 100 + 100]
        gap = sum(confidence[i] for i in members) / 100 - sum(correct[i] for i in members) / 100
        total += 100 / len(correct) * gap**2
    return total**0.5


@pytest.mark.parametrize("count", [200, 250, 1999])
def test_calibration_error_equals_the_code_of_imagenet_a(count):
    draw = torch.Generator().manual_seed(count)
    confidence = torch.rand(count, generator=draw, dtype=torch.float64)
    correct = torch.rand(count, generator=draw) < confidence**2
    assert calibration_error(confidence, correct) == pytest.approx(reference(confidence.tolist(), correct.tolist()))


def test_calibration_error_is_zero_when_calibrated_and_the_gap_when_overconfident():
    confidence = torch.tensor([0.25, 0.5, 0.75]).repeat_interleave(400)
    correct = torch.cat([torch.arange(400) < 400 * c for c in (0.25, 0.5, 0.75)])
    assert calibration_error(confidence, correct) == pytest.approx(0, abs=1e-7)
    sure = torch.full((1050,), 0.9)
    half = torch.arange(1050) % 2 == 0
    assert calibration_error(sure, half, all_bins=True) == pytest.approx(0.4)
    assert calibration_error(sure, half) == pytest.approx(0.4 * (900 / 1050) ** 0.5), "nine bins of ten"


@pytest.mark.parametrize("count", [0, 1, 99, 199])
def test_calibration_error_is_nan_without_a_complete_bin(count):
    confidence, correct = torch.full((count,), 0.9), torch.ones(count, dtype=torch.bool)
    assert math.isnan(calibration_error(confidence, correct))
    assert calibration_error(confidence, correct, all_bins=True) == pytest.approx(0.1) or not count


def test_a_confusion_matrix_counts_by_class_and_predicted_class():
    labels, predicted = torch.tensor([0, 0, 2, 2, 2]), torch.tensor([0, 1, 2, 2, 0])
    assert confusion_matrix(labels, predicted, 3).tolist() == [[1, 1, 0], [0, 0, 0], [1, 0, 2]]

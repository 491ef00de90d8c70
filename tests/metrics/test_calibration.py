"""Metrics of confidence against published code and values computed by hand."""

import math

import pytest
import torch

from vitpos.metrics.calibration import calibration_error, response_rate_accuracy


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

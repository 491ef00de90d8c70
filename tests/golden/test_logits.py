"""Every encoding and model gives the logits, penalties, gradients and first weights that it gave before the redesign."""

import numpy as np
import pytest

from tests.golden import logits
from tests.golden.cases import CASES
from tests.golden.stored import arrays, shapes_of

EXACT = 1e-12  # of the largest value; kernels for other processors and two threads differ by 1e-15
SUMMED = 1e-11  # gradients, summed over a tensor, differ by 3e-15
SINGLE = 2e-6  # first weights are float32, and normal draws differ between kernels by 2e-7

every = pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)


def close(found, stored, tolerance):
    assert found.shape == stored.shape
    np.testing.assert_allclose(found, stored, rtol=0, atol=tolerance * max(np.abs(stored).max(), 1e-30))


@every
def test_logits_and_penalties_are_those_of_before(case):
    found, stored = logits.logits(case, shapes_of(case)), arrays()[case.id]
    for row, one, before in zip(logits.situations(case), found, stored, strict=True):
        scale = np.abs(before[:-1]).max()
        np.testing.assert_allclose(one[:-1], before[:-1], rtol=0, atol=EXACT * scale, err_msg=f"logits, {row}")
        np.testing.assert_allclose(one[-1], before[-1], rtol=EXACT, atol=0, err_msg=f"penalty, {row}")


@every
def test_gradients_are_those_of_before(case):
    close(logits.gradients(case, shapes_of(case)), arrays()[f"{case.id} | gradients"], SUMMED)


@every
def test_first_weights_are_those_of_before(case):
    close(logits.first_weights(case, shapes_of(case)), arrays()[f"{case.id} | first weights"], SINGLE)

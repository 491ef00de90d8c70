import math
from functools import partial

import pytest

from vitpos.errors import InputError
from vitpos.training.recipe import Recipe
from vitpos.training.schedule import warmup_cosine


def test_the_learning_rate_rises_linearly_and_falls_to_zero():
    assert warmup_cosine(0, 0.1) == 0 and warmup_cosine(0.05, 0.1) == 0.5 and warmup_cosine(0.1, 0.1) == 1
    assert warmup_cosine(0.55, 0.1) == pytest.approx(0.5) and warmup_cosine(1, 0.1) == pytest.approx(0)
    assert warmup_cosine(0, 0) == 1 and math.isfinite(warmup_cosine(1, 0))


def test_the_learning_rate_goes_from_start_to_peak_to_end():
    rate = partial(warmup_cosine, warmup=0.1, peak=1e-3, start=1e-6, end=1e-5)
    assert rate(0) == 1e-6 and rate(0.05) == pytest.approx((1e-6 + 1e-3) / 2)
    assert rate(0.1) == pytest.approx(1e-3) and rate(0.55) == pytest.approx((1e-3 + 1e-5) / 2)
    assert rate(1) == pytest.approx(1e-5)
    for progress in (0.03, 0.1, 0.77):  # without start and end it is the peak times a factor, to the last bit
        assert warmup_cosine(progress, 0.1, peak=0.0123) == 0.0123 * warmup_cosine(progress, 0.1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"epochs": -1},
        {"lr": 0.0},
        {"warmup_fraction": 1.0},
        {"batch_size": 0},
        {"label_smoothing": 1.0},
        {"lr_end": 0.1},
    ],
)
def test_wrong_values_are_refused(wrong):
    with pytest.raises(InputError, match=f"train.{next(iter(wrong))} is"):
        Recipe(**wrong)


def test_more_parts_than_images_in_a_batch_are_refused():
    with pytest.raises(InputError, match=r"train\.grad_accum is 61"):
        Recipe(batch_size=60, grad_accum=61)

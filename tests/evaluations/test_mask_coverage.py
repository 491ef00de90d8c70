"""Coverage of the masks of MJP."""

import random

import pytest

from tests.evaluate import numbers_of
from tests.evaluations.models import digits, small_vit
from tests.references import published_mask
from vitpos.errors import InputError


def test_the_fraction_of_empty_masks_is_that_of_the_published_sampler():
    """At 3 % of 14×14 patches five may be masked, and ten proposals of rectangles of 5 to 8 patches often exceed five."""
    random.seed(0)
    published = sum(not published_mask((14, 14), 0.03, 8, 75).any() for _ in range(4000)) / 4000
    numbers = numbers_of("mask_coverage(grid=(14, 14))", small_vit("none"), digits(2))
    assert numbers["empty_low"] < numbers["empty_fraction"] < numbers["empty_high"]
    assert numbers["empty_fraction"] == pytest.approx(published, abs=0.025)  # 4 standard errors
    assert 0.14 < numbers["empty_fraction"] < 0.18 and 0 < numbers["covered"] < 5 / 196


def test_exact_masks_cover_the_ratio_on_the_grid_of_the_model():
    numbers = numbers_of("mask_coverage(mask_ratio=0.25, block_size='exact', masks=50)", small_vit("none"), digits(2))
    assert numbers["empty_fraction"] == numbers["empty_low"] == 0 and numbers["covered"] == pytest.approx(12 / 49)


def test_one_cell_of_a_small_grid_cannot_be_shuffled():
    numbers = numbers_of("mask_coverage(grid=(8, 8), block_size='scaled', masks=200)", small_vit("none"), digits(2))
    assert numbers["single_fraction"] + numbers["empty_fraction"] == 1 and numbers["single_fraction"] > 0


def test_no_masks_are_an_error():
    with pytest.raises(InputError, match="masks=0; take 1 or more"):
        numbers_of("mask_coverage(masks=0)", small_vit("none"), digits(2))

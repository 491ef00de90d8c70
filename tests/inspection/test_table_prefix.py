"""The position vector of a prefix token is compared with those of patches."""

import math

import pytest
import torch

from tests.inspection.tables import noise
from vitpos.errors import InputError
from vitpos.inspection.table_prefix import prefix_similarity

TABLE = noise((3, 5), 24)


def test_a_vector_of_the_table_is_found_and_an_unrelated_one_is_not():
    centered = TABLE.flatten(0, 1) - TABLE.flatten(0, 1).mean(0)
    own = prefix_similarity(-2 * centered[7], TABLE, samples=499)
    assert own.similarity == pytest.approx(1) and own.p == pytest.approx(1 / 500)
    p_values = [prefix_similarity(noise((1, 1), 24, seed)[0, 0], TABLE, samples=99).p for seed in range(50, 90)]
    assert sum(p <= 0.1 for p in p_values) < 11, "4 of 40 are expected"


def test_cosines_and_norms_are_those_of_a_loop():
    vector = noise((1, 1), 24, 99)[0, 0]
    found = prefix_similarity(vector, 5 * TABLE, samples=9)
    rows = [TABLE[r, c] for r in range(3) for c in range(5)]
    mean = sum(rows) / 15
    for similarity, vectors in (
        (found.similarity, [row - mean for row in rows]),
        (found.raw_similarity, rows),
    ):
        cosines = [(row @ vector / row.norm() / vector.norm()).abs().item() for row in vectors]
        assert similarity == pytest.approx(max(cosines))
    assert found.norm_ratio == pytest.approx((vector.norm() / sum(5 * row.norm() for row in rows) * 15).item())


def test_what_all_positions_have_in_common_counts_only_without_centering():
    common = torch.ones(24, dtype=torch.float64)
    found = prefix_similarity(common, TABLE + 5 * common, samples=499)
    assert found.raw_p == pytest.approx(1 / 500) and found.p > 0.01


def test_undefined_similarities_are_nan_and_a_wrong_width_is_an_error():
    zero = prefix_similarity(torch.zeros(24), TABLE, samples=9)
    assert zero.norm_ratio == 0 and math.isnan(zero.similarity) and math.isnan(zero.p)
    constant = prefix_similarity(torch.ones(4), torch.ones(2, 3, 4), samples=9)
    assert math.isnan(constant.p) and constant.raw_similarity == pytest.approx(1)
    with pytest.raises(InputError, match="width 24 got a vector of shape"):
        prefix_similarity(torch.zeros(5), TABLE)

"""Interpolation along one axis is linear between steps and exact at whole steps."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vitpos.encodings._interp1d import interp1d


@given(st.integers(2, 6), st.lists(st.floats(-3, 9), min_size=1, max_size=5))
@settings(max_examples=40)
def test_interpolation_is_linear_between_steps_and_exact_at_whole_steps(count, at):
    values = torch.randn(1, 1, 1, count, dtype=torch.float64)
    whole = interp1d(values, torch.arange(float(count))[None, None, None])
    assert torch.equal(whole, values)
    read = interp1d(values, torch.tensor(at, dtype=torch.float64)[None, None, None])[0, 0, 0]
    for value, place in zip(read, at, strict=True):
        place = min(max(place, 0), count - 1)
        low = min(int(place), count - 2)
        row = values[0, 0, 0]
        assert abs(value - (row[low] + (place - low) * (row[low + 1] - row[low]))) < 1e-9

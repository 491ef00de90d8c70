"""Factorized tables add a vector of the row and a vector of the column."""

import pytest
import torch

from tests.encodings.inputs import CELLS, GRID, build
from vitpos.positions import Positions


@pytest.mark.parametrize("spec", ["factorized", "factorized(fractional=True)"])
def test_the_vector_of_a_position_is_its_formula(spec):
    encoding = build(spec)
    added = encoding.vectors(Positions.from_grid(GRID), 0, torch.float64)[0]
    expected = torch.stack([encoding.rows[row] + encoding.columns[column] for row, column in CELLS])
    assert (added - expected).abs().max() < 1e-6

"""Fourier features are their formula, cell by cell."""

import math

import pytest
import torch
import torch.nn.functional as F

from tests.encodings.inputs import CELLS, GRID, build
from vitpos.positions import Positions


@pytest.mark.parametrize("spec", ["fourier", "fourier(learnable=False)"])
def test_the_vector_of_a_position_is_its_formula(spec):
    encoding = build(spec)
    added = encoding.vectors(Positions.from_grid(GRID), 0, torch.float64)[0]
    for n, (row, column) in enumerate(CELLS):
        at = 2 * (row + 0.5) / GRID[0] - 1, 2 * (column + 0.5) / GRID[1] - 1
        angles = 2 * math.pi * (encoding.directions[0] * at[0] + encoding.directions[1] * at[1])
        expected = torch.cat([angles.cos(), angles.sin()])
        if spec == "fourier":
            first, _, last = encoding.network
            expected = last.weight @ F.gelu(first.weight @ expected / 32**0.5 + first.bias) + last.bias
        assert (added[n] - expected).abs().max() < 1e-6

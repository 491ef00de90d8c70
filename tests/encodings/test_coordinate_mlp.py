"""The coordinate MLP is its formula, cell by cell."""

import torch
import torch.nn.functional as F

from tests.encodings.inputs import CELLS, GRID, build
from vitpos.positions import Positions


def test_the_vector_of_a_position_is_its_formula():
    encoding = build("coordinate_mlp")
    added = encoding.vectors(Positions.from_grid(GRID), 0, torch.float64)[0]
    first, _, last = encoding.network
    for n, (row, column) in enumerate(CELLS):
        at = torch.tensor([2 * (row + 0.5) / GRID[0] - 1, 2 * (column + 0.5) / GRID[1] - 1], dtype=torch.float64)
        expected = last.weight @ F.gelu(first.weight @ at + first.bias) + last.bias
        assert (added[n] - expected).abs().max() < 1e-6

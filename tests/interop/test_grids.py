"""Grids from relative indices and factorizations."""

import pytest
import torch

from tests.interop.checkpoints import swin_index
from vitpos.interop.grids import factorizations, grid_from_relative_index


def test_factorizations_are_complete_and_the_most_square_come_first():
    assert factorizations(12) == [(3, 4), (4, 3), (2, 6), (6, 2), (1, 12), (12, 1)]
    assert factorizations(9) == [(3, 3), (1, 9), (9, 1)] and factorizations(1) == [(1, 1)]


@pytest.mark.parametrize("grid", [(3, 5), (5, 3), (2, 2), (7, 7)])
def test_a_relative_index_determines_the_grid(grid):
    index = swin_index(grid)
    assert grid_from_relative_index(index) == grid
    with_cls = torch.nn.functional.pad(index, (1, 0, 1, 0), value=int(index.max()) + 1)
    assert grid_from_relative_index(with_cls) == grid, "BEiT's, with CLS first"
    assert grid_from_relative_index(index.flip(0)) is None and grid_from_relative_index(index.float()) is None
    assert grid_from_relative_index(swin_index((1, 6))) is None, "the index of 6x1 is the same"

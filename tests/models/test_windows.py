"""Windows are cut from a grid, joined again, and masked at the border."""

import pytest
import torch

from vitpos.models.windows import Windows


@pytest.mark.parametrize("shifted", [False, True])
@pytest.mark.parametrize(("grid", "window"), [((4, 8), (2, 4)), ((4, 9), (2, 3)), ((5, 7), (2, 3)), ((3, 8), (4, 4))])
def test_windows_are_cut_and_joined_and_only_neighbors_see_each_other(grid, window, shifted):
    windows = Windows.of(grid, window, shifted=shifted)
    cells = torch.arange(1.0, 1 + grid[0] * grid[1]).view(1, *grid, 1).repeat(2, 1, 1, 3)  # 0 is left for padding
    cut = windows.partition(cells)
    assert torch.equal(windows.reverse(cut), cells)
    inside = cut[: len(cut) // 2, :, 0]  # (W, n)
    assert inside.count_nonzero() == grid[0] * grid[1]
    rows, columns = (inside - 1) // grid[1], (inside - 1) % grid[1]
    near = [(x[:, :, None] - x[:, None]).abs() < side for x, side in zip((rows, columns), windows.size, strict=True)]
    real = inside > 0
    mask = windows.mask(cut)
    seen = torch.ones_like(near[0]) if mask is None else mask[:, 0] == 0
    both = real[:, :, None] & real[:, None]
    assert torch.equal((seen & both), near[0] & near[1] & both)
    assert not (seen & (real[:, :, None] != real[:, None])).any()
    assert seen.diagonal(dim1=1, dim2=2).all()

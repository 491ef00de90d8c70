import itertools

import torch

from vitpos.shifts import overlapping_cells, shift_each, shift_pair


def test_shifts_equal_a_loop_over_pixels_and_overlapping_cells_show_the_same():
    images = torch.arange(1, 2 * 5 * 7 + 1).view(2, 1, 5, 7).to(torch.uint8)
    for by in ((1, 2), (-2, 3), (0, -1)):
        down, right = by
        _, shifted = shift_pair(images, by, "zeros")
        for row, column in itertools.product(range(5), range(7)):
            inside = 0 <= row - down < 5 and 0 <= column - right < 7
            expected = images[:, 0, row - down, column - right] if inside else torch.zeros(2, dtype=torch.uint8)
            assert torch.equal(shifted[:, 0, row, column], expected)
        for border in ("zeros", "wrap"):
            each = shift_each(images, torch.tensor([by, by]), border)
            assert torch.equal(each, shift_pair(images, by, border)[1])
        for border in ("zeros", "wrap", "crop"):
            before, after = shift_pair(images, by, border)
            at, to = overlapping_cells((5, 7), by, border)
            assert torch.equal(before.flatten(2)[:, :, at], after.flatten(2)[:, :, to]) and len(at) >= 12
    alone = shift_each(images, torch.tensor([(1, 2), (-1, 0)]), "wrap")
    assert torch.equal(alone[1], images[1].roll(-1, 1)) and torch.equal(alone[0], images[0].roll((1, 2), (1, 2)))

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vitpos.patches import grid_of, join, permutation, permutations, rearrange, refine, split

sides = st.integers(1, 4)


@given(sides, sides, sides, sides, st.integers(1, 3))
def test_joining_what_was_split_gives_the_picture_back(rows, columns, height, width, channels):
    images = torch.randn(2, channels, rows * height, columns * width)
    patches = split(images, (height, width))
    assert patches.shape == (2, rows * columns, channels * height * width)
    assert torch.equal(join(patches, (rows, columns), (height, width)), images)


def test_patches_are_row_major_and_their_pixels_as_a_convolution_reads_them():
    images, kernel = torch.randn(2, 3, 6, 8), torch.randn(5, 3, 2, 4)
    expected = torch.nn.functional.conv2d(images, kernel, stride=(2, 4)).flatten(2).mT  # (B, N, 5)
    assert torch.allclose(split(images, (2, 4)) @ kernel.flatten(1).mT, expected, atol=1e-5)


@given(sides, sides, st.integers(0, 99))
def test_rearranging_back_gives_the_picture_back(rows, columns, seed):
    images = torch.randn(2, 1, rows * 2, columns * 3)
    order = permutation(rows * columns, seed=seed)
    there = rearrange(images, (rows, columns), order)
    assert torch.equal(rearrange(there, (rows, columns), order.argsort()), images)
    assert torch.equal(split(there, (2, 3)), split(images, (2, 3))[:, order])


def test_an_order_for_each_image_moves_each_image_alone():
    images = torch.randn(4, 2, 6, 6)
    orders = permutations(4, 9, seed=0)
    moved = rearrange(images, (3, 3), orders)
    for i in range(4):
        assert torch.equal(moved[i : i + 1], rearrange(images[i : i + 1], (3, 3), orders[i]))


@settings(max_examples=20)
@given(sides, sides, sides, sides)
def test_a_finer_grid_moves_as_its_coarser_one_does(rows, columns, down, across):
    finer = rows * down, columns * across
    images = torch.randn(1, 1, finer[0] * 2, finer[1] * 2)
    order = permutation(rows * columns, seed=1)
    patches = split(images, (2, 2))[:, refine(order, (rows, columns), finer)]
    assert torch.equal(patches, split(rearrange(images, (rows, columns), order), (2, 2)))


def test_permutations_are_permutations_and_differ():
    orders = permutations(50, 12, seed=0)
    assert torch.equal(orders.sort(1).values, torch.arange(12).expand(50, -1))
    assert len({tuple(order) for order in orders.tolist()}) == 50


def test_what_cannot_be_cut_is_refused_with_its_size():
    with pytest.raises(ValueError, match="28x28 pixels cannot be cut into patches of 5x4"):
        grid_of((28, 28), (5, 4))
    with pytest.raises(ValueError, match="no grid of 5x7"):
        rearrange(torch.zeros(1, 1, 28, 28), (5, 7), torch.arange(35))
    with pytest.raises(ValueError, match="2x3 grid are not made of whole patches of a 4x4"):
        refine(torch.arange(6), (2, 3), (4, 4))


@pytest.mark.parametrize("each", [False, True])
def test_a_few_cells_move_as_whole_blocks_of_pixels_and_the_rest_stays(each):
    images = torch.arange(3 * 2 * 6 * 20.0).view(3, 2, 6, 20)  # cells of 2×5 pixels on a 3×4 grid
    orders = torch.arange(12).repeat(3 if each else 1, 1)
    orders[:, [1, 6, 7]] = torch.tensor([7, 1, 6])
    if each:
        orders[1], orders[2, [0, 11]] = torch.arange(12), torch.tensor([11, 0])
    moved = rearrange(images, (3, 4), orders if each else orders[0])
    for image in range(3):
        for slot, cell in enumerate(orders[image if each else 0].tolist()):
            (r, c), (fr, fc) = divmod(slot, 4), divmod(cell, 4)
            there = moved[image, :, 2 * r : 2 * r + 2, 5 * c : 5 * c + 5]
            assert torch.equal(there, images[image, :, 2 * fr : 2 * fr + 2, 5 * fc : 5 * fc + 5])


@pytest.mark.parametrize("order", [[[1, 0, 3, 2]], [[1, 0, 2, 3]]])
def test_one_order_serves_all_images_however_many_cells_move(order):
    images = torch.rand(4, 1, 4, 4)
    assert torch.equal(
        rearrange(images, (2, 2), torch.tensor(order)), rearrange(images, (2, 2), torch.tensor(order[0]))
    )

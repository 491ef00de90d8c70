import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vitpos.patches import (
    patch_grid,
    patchify,
    permute_patches,
    seeded_permutation,
    seeded_permutations,
    unpatchify,
    upsample_order,
)

sides = st.integers(1, 4)


@given(sides, sides, sides, sides, st.integers(1, 3))
def test_unpatchify_is_the_inverse_of_patchify(rows, columns, height, width, channels):
    images = torch.randn(2, channels, rows * height, columns * width)
    patches = patchify(images, (height, width))
    assert patches.shape == (2, rows * columns, channels * height * width)
    assert torch.equal(unpatchify(patches, (rows, columns), (height, width)), images)


def test_a_linear_map_of_patches_is_a_strided_convolution():
    images, kernel = torch.randn(2, 3, 6, 8), torch.randn(5, 3, 2, 4)
    expected = torch.nn.functional.conv2d(images, kernel, stride=(2, 4)).flatten(2).mT  # (B, N, 5)
    assert torch.allclose(patchify(images, (2, 4)) @ kernel.flatten(1).mT, expected, atol=1e-5)


@given(sides, sides, st.integers(0, 99))
def test_permuting_by_the_inverse_order_restores_the_image(rows, columns, seed):
    images = torch.randn(2, 1, rows * 2, columns * 3)
    order = seeded_permutation(rows * columns, seed=seed)
    permuted = permute_patches(images, (rows, columns), order)
    assert torch.equal(permute_patches(permuted, (rows, columns), order.argsort()), images)
    assert torch.equal(patchify(permuted, (2, 3)), patchify(images, (2, 3))[:, order])


def test_each_image_can_have_its_own_order():
    images = torch.randn(4, 2, 6, 6)
    orders = seeded_permutations(4, 9, seed=0)
    moved = permute_patches(images, (3, 3), orders)
    for i in range(4):
        assert torch.equal(moved[i : i + 1], permute_patches(images[i : i + 1], (3, 3), orders[i]))


@settings(max_examples=20)
@given(sides, sides, sides, sides)
def test_an_upsampled_order_permutes_patches_as_the_coarse_order_does(rows, columns, down, across):
    finer = rows * down, columns * across
    images = torch.randn(1, 1, finer[0] * 2, finer[1] * 2)
    order = seeded_permutation(rows * columns, seed=1)
    patches = patchify(images, (2, 2))[:, upsample_order(order, (rows, columns), finer)]
    assert torch.equal(patches, patchify(permute_patches(images, (rows, columns), order), (2, 2)))


def test_seeded_permutations_are_permutations_and_differ():
    orders = seeded_permutations(50, 12, seed=0)
    assert torch.equal(orders.sort(1).values, torch.arange(12).expand(50, -1))
    assert len({tuple(order) for order in orders.tolist()}) == 50


def test_sizes_that_do_not_divide_are_refused():
    with pytest.raises(ValueError, match="28x28 pixels cannot be cut into patches of 5x4"):
        patch_grid((28, 28), (5, 4))
    with pytest.raises(ValueError, match="no grid of 5x7"):
        permute_patches(torch.zeros(1, 1, 28, 28), (5, 7), torch.arange(35))
    with pytest.raises(ValueError, match="2x3 grid do not consist of whole patches of a 4x4"):
        upsample_order(torch.arange(6), (2, 3), (4, 4))


@pytest.mark.parametrize("each", [False, True])
def test_an_order_that_moves_few_patches_copies_them_and_keeps_the_rest(each):
    images = torch.arange(3 * 2 * 6 * 20.0).view(3, 2, 6, 20)  # cells of 2×5 pixels on a 3×4 grid
    orders = torch.arange(12).repeat(3 if each else 1, 1)
    orders[:, [1, 6, 7]] = torch.tensor([7, 1, 6])
    if each:
        orders[1], orders[2, [0, 11]] = torch.arange(12), torch.tensor([11, 0])
    moved = permute_patches(images, (3, 4), orders if each else orders[0])
    for image in range(3):
        for slot, cell in enumerate(orders[image if each else 0].tolist()):
            (r, c), (fr, fc) = divmod(slot, 4), divmod(cell, 4)
            patch = moved[image, :, 2 * r : 2 * r + 2, 5 * c : 5 * c + 5]
            assert torch.equal(patch, images[image, :, 2 * fr : 2 * fr + 2, 5 * fc : 5 * fc + 5])


@pytest.mark.parametrize("order", [[[1, 0, 3, 2]], [[1, 0, 2, 3]]])
def test_an_order_of_shape_1_n_is_used_for_all_images(order):
    images = torch.rand(4, 1, 4, 4)
    assert torch.equal(
        permute_patches(images, (2, 2), torch.tensor(order)), permute_patches(images, (2, 2), torch.tensor(order[0]))
    )

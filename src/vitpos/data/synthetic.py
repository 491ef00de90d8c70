"""Synthetic tasks that depend on position alone, so that the best accuracy with and without positions is known.

A bag of patches is a model that sees the patches of an image but not their positions, such as attention without
position encoding. All images depend on the seed; training and test images are sampled independently.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from vitpos.data.dataset import Dataset, Split
from vitpos.data.mnist import mnist
from vitpos.errors import InputError
from vitpos.patches import seeded_permutation

WHITE, GRAY = 255, 128
NOISE_LEVELS = 26  # gray levels of the background noise, far below those of the squares
TRAIN_PER_TEST = 4  # training images for each test image
DIGIT = 28  # height and width of MNIST's digits
MAX_BYTES = 2 * 10**9  # of the training images; making them takes several times as much memory


def dot_location(
    *,
    count: int = 4000,
    size: tuple[int, int] = (32, 32),
    grid: tuple[int, int] = (4, 4),
    patch: int = 4,
    seed: int = 0,
) -> Dataset:
    """A bright square at a random position in one cell of a grid, in faint noise; the class is the number of the cell.

    Best accuracy: 1. Chance: 1 / number of cells; a bag of patches (a model without positions) cannot do better, if
    cells consist of whole patches. Classes are numbered row by row and equally frequent.

    Args:
        count: Number of training images; there are a quarter as many test images.
        size: Height and width of the images.
        grid: Rows and columns of cells.
        patch: Side of the square in pixels.
        seed: Seed of all random choices.
    """
    if min(grid) < 1 or patch < 1 or any(s % g or s // g < patch for s, g in zip(size, grid, strict=True)):
        raise InputError(
            f"data 'dot_location' got size={size}, grid={grid}, patch={patch}; "
            "choose rows and columns that divide height and width into cells of a patch or more"
        )
    train, test = split_sizes("data 'dot_location'", count, seed, size)
    cell = torch.tensor(size) // torch.tensor(grid)  # (2,), height and width

    def make(count: int, seed: int) -> Split:
        generator = torch.Generator().manual_seed(seed)
        labels = torch.arange(count) % (grid[0] * grid[1])
        cell_corner = torch.stack([labels // grid[1], labels % grid[1]], 1) * cell
        canvas = faint_noise(count, size, generator)
        corner = cell_corner + _random_corner(count, cell - patch + 1, generator)
        return Split(paste(canvas, WHITE, (patch, patch), corner), labels)

    names = tuple(f"row {row}, column {column}" for row in range(grid[0]) for column in range(grid[1]))
    return normalized(make(*train), make(*test), names)


def patch_order(
    *,
    count: int = 4000,
    size: tuple[int, int] = (32, 32),
    patch: int = 4,
    distance: int = 1,
    seed: int = 0,
) -> Dataset:
    """The same patches in two orders: a white patch left of a gray one, or the gray one left of the white.

    Best accuracy: 1. Chance: 1/2, which is exactly the accuracy of a bag of patches (a model without positions) if its
    patch size divides ``patch``: images come in pairs, one of each class, that have the same patches. Both squares lie
    in one row of patches, anywhere in faint noise.

    Args:
        count: Number of training images; there are a quarter as many test images.
        size: Height and width of the images.
        patch: Side of the squares in pixels.
        distance: Distance from one square to the other in units of ``patch``; 1 means that they are adjacent.
        seed: Seed of all random choices.
    """
    bad = patch < 1 or distance < 1 or any(side % patch for side in size)
    if bad or size[0] < patch or size[1] // patch <= distance:
        raise InputError(
            f"data 'patch_order' got size={size}, patch={patch}, distance={distance}; "
            "choose a patch that divides height and width, and a distance below the number of columns"
        )
    room = torch.tensor([size[0] // patch, size[1] // patch - distance])

    def make(count: int, seed: int) -> Split:
        generator = torch.Generator().manual_seed(seed)
        pairs = count // 2
        canvas, left = faint_noise(pairs, size, generator), _random_corner(pairs, room, generator) * patch
        right, square = left + torch.tensor([0, distance * patch]), (patch, patch)
        both = [paste(paste(canvas, a, square, left), b, square, right) for a, b in ((WHITE, GRAY), (GRAY, WHITE))]
        return Split(torch.stack(both, 1).flatten(0, 1), torch.arange(2 * pairs) % 2)  # images of a pair are adjacent

    train, test = (make(*half) for half in split_sizes("data 'patch_order'", count, seed, size))
    return normalized(train, test, ("white left of gray", "gray left of white"))


def left_right(
    *,
    test: Literal["right", "left"] = "right",
    count: int = 10000,
    size: tuple[int, int] = (32, 64),
    seed: int = 0,
) -> Dataset:
    """MNIST digits in the left half of training images and in the right half of test images.

    Best accuracy: that of the same model with ``test="left"``, which has the same test digits in the left half. Chance:
    about 1/10. A bag of patches (a model without positions) has the same accuracy on both sides if half the width
    consists of whole patches.

    Args:
        test: The half of the image in which the test digits are.
        count: Number of training digits; there are a quarter as many test digits. Each lies anywhere in its half.
        size: Height and width of the images.
        seed: Seed of all random choices.
    """
    height, half = size[0], size[1] // 2
    if min(height, half) < DIGIT or size[1] % 2:
        raise InputError(
            f"data 'left_right' got size={size}; for digits of 28×28 choose a height from 28 and an even width from 56"
        )
    train_size, test_size = split_sizes("data 'left_right'", count, seed, size)
    digits = mnist()
    if count > len(digits.train):
        raise InputError(
            f"data 'left_right' got count={count}; MNIST has {len(digits.train)} training digits, so take fewer"
        )
    room = torch.tensor([height, half]) - DIGIT + 1

    def make(split: Split, shift: int, count: int, seed: int) -> Split:
        chosen = split.subset(seeded_permutation(len(split), seed=seed)[:count])
        corner = _random_corner(count, room, torch.Generator().manual_seed(seed)) + torch.tensor([0, shift])
        canvas = torch.zeros(count, 1, *size, dtype=torch.uint8)
        return Split(paste(canvas, chosen.images[:][:, 0], (DIGIT, DIGIT), corner), chosen.labels)

    shift = half if test == "right" else 0
    return normalized(make(digits.train, 0, *train_size), make(digits.test, shift, *test_size), digits.classes)


def paste(canvas: Tensor, content: Tensor | int, size: tuple[int, int], corner: Tensor) -> Tensor:
    """Returns a copy of images (n, 1, height, width) with a rectangle of ``size`` replaced in each.

    Args:
        canvas: The images.
        content: The new pixels (n, *size), or one gray level, 0 to 255.
        size: Height and width of the rectangle.
        corner: Row and column (n, 2) of its upper left pixel.
    """
    rows, columns = (corner[:, axis, None] + torch.arange(size[axis]) for axis in (0, 1))  # (n, size[0]), (n, size[1])
    changed = canvas.clone()
    changed[torch.arange(len(canvas))[:, None, None], 0, rows[:, :, None], columns[:, None]] = torch.as_tensor(
        content, dtype=canvas.dtype
    )
    return changed


def split_sizes(
    name: str, count: int, seed: int, size: tuple[int, int] = (DIGIT, DIGIT)
) -> tuple[tuple[int, int], tuple[int, int]]:
    """Returns two pairs (number of images, seed): one for the train split and one for the test split.

    There are a quarter as many test images as training images. The two seeds are different, and no other
    ``seed`` gives one of them. Raises InputError if the training images are too large for memory.

    Args:
        name: Name of the data set, for error messages.
        count: Number of training images.
        seed: Seed of the data set.
        size: Height and width of the images.
    """
    if count < 2 * TRAIN_PER_TEST or not 0 <= seed < 2**62:
        raise InputError(f"{name} got count={count}, seed={seed}; take 8 images or more and a seed from 0")
    if count * size[0] * size[1] > MAX_BYTES:
        raise InputError(
            f"{name} got count={count} images of {size[0]}x{size[1]}, which are {count * size[0] * size[1] / 1e9:.0f} "
            f"GB; take fewer or smaller ones, up to {MAX_BYTES / 1e9:.0f} GB"
        )
    return (count, 2 * seed), (count // TRAIN_PER_TEST, 2 * seed + 1)


def faint_noise(count: int, size: tuple[int, int], generator: torch.Generator) -> Tensor:
    """Returns random images (count, 1, height, width), uint8, with gray levels 0 to 25; ``size`` is (height, width)."""
    return torch.randint(NOISE_LEVELS, (count, 1, *size), generator=generator, dtype=torch.uint8)


def _random_corner(count: int, room: Tensor, generator: torch.Generator) -> Tensor:
    """Samples ``count`` random upper left corners (count, 2): integer rows and columns.

    Rows are from 0 to ``room[0]`` − 1, columns from 0 to ``room[1]`` − 1.
    """
    return (torch.rand(count, 2, generator=generator) * room).long()


def normalized(train: Split, test: Split, classes: tuple[str, ...]) -> Dataset:
    """Returns a data set of two splits; the mean and std for normalization are those of its training images."""
    assert isinstance(train.images, Tensor)
    levels = torch.arange(256, dtype=torch.float64) / 255
    frequency = train.images.flatten().bincount(minlength=256) / train.images.numel()
    mean = (frequency * levels).sum().item()
    return Dataset(train, test, classes, (mean,), ((frequency * (levels - mean) ** 2).sum().sqrt().item(),))

"""Tasks made on the spot in which position is everything: what can be reached with it, and without it, is known.

A bag of patches is whoever sees the patches of a picture but not where they lie, such as attention without positions.
Everything depends on the seed; training and test pictures are drawn apart from each other.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from vitpos.data.dataset import Dataset, Split
from vitpos.data.mnist import mnist
from vitpos.errors import UserError
from vitpos.patches import permutation

WHITE, GREY = 255, 128
NOISE = 26  # grey levels of the noise that pictures are filled with, far below whatever is shown in them
SHARE = 4  # training pictures for each test picture
DIGIT = 28  # height and width of MNIST's digits
MOST = 2 * 10**9  # bytes of pictures to train that are made; making them takes several times as much memory


def dot(
    *,
    count: int = 4000,
    size: tuple[int, int] = (32, 32),
    grid: tuple[int, int] = (4, 4),
    patch: int = 4,
    seed: int = 0,
) -> Dataset:
    """Where is the dot: a bright square of a patch's size, anywhere in one cell of a grid, which is its class.

    Ceiling: 1. Chance: 1 over the number of cells, which is all that a bag of patches reaches where cells are made of
    whole patches of the model. ``count`` pictures of ``size`` (height, width) in faint noise to train, a quarter as many
    to test; ``patch`` is the side of the dot. Classes go by the rows of the grid and are equally frequent.
    """
    if min(grid) < 1 or patch < 1 or any(s % g or s // g < patch for s, g in zip(size, grid, strict=True)):
        raise UserError(
            f"data 'dot' got size={size}, grid={grid}, patch={patch}; "
            "choose rows and columns that divide height and width into cells of a patch or more"
        )
    both = halves("data 'dot'", count, seed, size)
    cell = torch.tensor(size) // torch.tensor(grid)  # (2,), height and width

    def make(count: int, stream: int) -> Split:
        draw = torch.Generator().manual_seed(stream)
        labels = torch.arange(count) % (grid[0] * grid[1])
        first = torch.stack([labels // grid[1], labels % grid[1]], 1) * cell
        canvas = _noise(count, size, draw)
        return Split(paste(canvas, WHITE, (patch, patch), first + _anywhere(count, cell - patch + 1, draw)), labels)

    names = tuple(f"row {row}, column {column}" for row in range(grid[0]) for column in range(grid[1]))
    train, test = (make(*half) for half in both)
    return _dataset(train, test, names)


def order(
    *,
    count: int = 4000,
    size: tuple[int, int] = (32, 32),
    patch: int = 4,
    apart: int = 1,
    seed: int = 0,
) -> Dataset:
    """The same patches in another order: is the white patch left of the grey one, or the grey one left of the white?

    Ceiling: 1, for whoever sees which of two patches is further left. Chance: 1/2, and a bag of patches whose side
    divides ``patch`` reaches exactly that: pictures come in pairs, one of each class, that have all patches in common.
    Both squares lie in one row of patches, ``apart`` columns from each other, anywhere in faint noise. ``count`` pictures
    of ``size`` (height, width) to train, a quarter as many to test.
    """
    if patch < 1 or apart < 1 or any(side % patch for side in size) or size[0] < patch or size[1] // patch <= apart:
        raise UserError(
            f"data 'order' got size={size}, patch={patch}, apart={apart}; "
            "choose a patch that divides height and width, and squares fewer columns apart than there are"
        )
    places = torch.tensor([size[0] // patch, size[1] // patch - apart])

    def make(count: int, stream: int) -> Split:
        draw = torch.Generator().manual_seed(stream)
        pairs = count // 2
        canvas, left = _noise(pairs, size, draw), _anywhere(pairs, places, draw) * patch
        right, square = left + torch.tensor([0, apart * patch]), (patch, patch)
        both = [paste(paste(canvas, a, square, left), b, square, right) for a, b in ((WHITE, GREY), (GREY, WHITE))]
        return Split(torch.stack(both, 1).flatten(0, 1), torch.arange(2 * pairs) % 2)  # those of a pair are neighbours

    train, test = (make(*half) for half in halves("data 'order'", count, seed, size))
    return _dataset(train, test, ("white left of grey", "grey left of white"))


def sides(
    *,
    test: Literal["right", "left"] = "right",
    count: int = 10000,
    size: tuple[int, int] = (32, 64),
    seed: int = 0,
) -> Dataset:
    """From left to right: digits of MNIST in the left half of a picture to train, in its right half to test.

    Ceiling: what the same model reaches with ``test="left"``, where the same digits lie half a width further left, as
    the training digits do. Chance: about 1/10. A bag of patches reaches its ceiling where half the width is made of whole
    patches, as it cannot tell the sides apart. ``count`` digits to train, a quarter as many to test, each anywhere in its
    half of a picture of ``size`` (height, width).
    """
    height, half = size[0], size[1] // 2
    if min(height, half) < DIGIT or size[1] % 2:
        raise UserError(
            f"data 'sides' got size={size}; for digits of 28×28 choose a height from 28 and an even width from 56"
        )
    first, second = halves("data 'sides'", count, seed, size)
    whole = mnist()
    if count > len(whole.train):
        raise UserError(f"data 'sides' got count={count}; MNIST has {len(whole.train)} digits to train, so take fewer")
    room = torch.tensor([height, half]) - DIGIT + 1

    def make(split: Split, shift: int, count: int, stream: int) -> Split:
        digits = split.take(permutation(len(split), seed=stream)[:count])
        corner = _anywhere(count, room, torch.Generator().manual_seed(stream)) + torch.tensor([0, shift])
        canvas = torch.zeros(count, 1, *size, dtype=torch.uint8)
        return Split(paste(canvas, digits.images[:][:, 0], (DIGIT, DIGIT), corner), digits.labels)

    shift = half if test == "right" else 0
    return _dataset(make(whole.train, 0, *first), make(whole.test, shift, *second), whole.classes)


def paste(canvas: Tensor, things: Tensor | int, size: tuple[int, int], corner: Tensor) -> Tensor:
    """Copies of pictures (n, 1, height, width) with a thing in each, (n, *size) bytes or of one grey level for all.

    ``corner`` (n, 2): the row and column of its first pixel.
    """
    rows, columns = (corner[:, axis, None] + torch.arange(size[axis]) for axis in (0, 1))  # (n, high), (n, wide)
    changed = canvas.clone()
    changed[torch.arange(len(canvas))[:, None, None], 0, rows[:, :, None], columns[:, None]] = torch.as_tensor(
        things, dtype=canvas.dtype
    )
    return changed


def _noise(count: int, size: tuple[int, int], draw: torch.Generator) -> Tensor:
    return torch.randint(NOISE, (count, 1, *size), generator=draw, dtype=torch.uint8)


def _anywhere(count: int, room: Tensor, draw: torch.Generator) -> Tensor:
    """(count, 2) rows and columns, each below ``room`` (2,)."""
    return (torch.rand(count, 2, generator=draw) * room).long()


def halves(
    what: str, count: int, seed: int, size: tuple[int, int] = (DIGIT, DIGIT)
) -> tuple[tuple[int, int], tuple[int, int]]:
    """How many pictures to train and to test, each with the seed of a stream that nobody else draws from."""
    if count < 2 * SHARE or not 0 <= seed < 2**62:
        raise UserError(f"{what} got count={count}, seed={seed}; take 8 pictures or more and a seed from 0")
    if count * size[0] * size[1] > MOST:
        raise UserError(
            f"{what} got count={count} pictures of {size[0]}x{size[1]}, which are {count * size[0] * size[1] / 1e9:.0f} "
            f"GB; take fewer or smaller ones, up to {MOST / 1e9:.0f} GB"
        )
    return (count, 2 * seed), (count // SHARE, 2 * seed + 1)


def _dataset(train: Split, test: Split, classes: tuple[str, ...]) -> Dataset:
    """The two halves, normalised by the mean and deviation of the training pictures."""
    assert isinstance(train.images, Tensor)
    levels = torch.arange(256, dtype=torch.float64) / 255
    shares = train.images.flatten().bincount(minlength=256) / train.images.numel()
    mean = (shares * levels).sum().item()
    return Dataset(train, test, classes, (mean,), ((shares * (levels - mean) ** 2).sum().sqrt().item(),))

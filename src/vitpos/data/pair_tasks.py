"""Synthetic tasks on pairs of squares, one for each way in which SaPE2 may fail, and a control for each.

A summary of SaPE2 (Chen et al., arXiv 2505.09466) names three failures: similarity of patches that is not useful, gates
that weigh patches wrongly, and spatial information that is lost because rows and columns are counted separately. Each
task needs what the failure would destroy; its control (``control=True``) has squares of the same kind but does not need
it. A model that fails in a task and solves the control has the failure. Learned positions solve all of them.

Images are faint noise with squares of one patch each. They come in adjacent pairs, one image of each class, with the
same patches at other positions, so a bag of patches (a model without positions) whose patch size divides that of the
squares is right in exactly half of the images. Training and test images are sampled independently.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from vitpos.data.dataset import Dataset, Split
from vitpos.data.synthetic import faint_noise, normalized, paste, split_sizes
from vitpos.errors import InputError
from vitpos.patches import patchify

WHITE, LIGHT, DARK = 255, 170, 85
Square = tuple[int | Tensor, Tensor, Tensor]  # gray level () or (n,), row (n,) and column (n,) in each of n images
Layout = Callable[[int, torch.Generator], tuple[list[Square], list[Square]]]  # squares of both classes, for n pairs


def unlike_pair(
    *, count: int = 4000, size: tuple[int, int] = (16, 16), patch: int = 4, control: bool = False, seed: int = 0
) -> Dataset:
    """A light and a dark square in one row or in one column, which is the class, beside two white squares.

    The white squares are in one row or in one column at random, so that the similarity of two patches is of no use: the
    class depends on the positions of two different ones. In the control the class is the orientation of the white pair,
    in the same images. Squares of different pairs share no row or column. Best accuracy: 1. Chance, and the accuracy of a
    bag of patches: 1/2.

    Args:
        count: Number of training images; there are a quarter as many test images.
        size: Height and width of the images.
        patch: Side of the squares in pixels.
        control: Makes the orientation of the equal squares the class.
        seed: Seed of all random choices.
    """
    rows, columns = _grid("unlike_pair", size, patch, 4)

    def layout(pairs: int, generator: torch.Generator) -> tuple[list[Square], list[Square]]:
        row, column = (_distinct(pairs, side, 4, generator) for side in (rows, columns))
        random = torch.rand(pairs, generator=generator) < 0.5

        def squares(label: bool) -> list[Square]:
            class_ = torch.full_like(random, label)
            equal, unlike = (class_, random) if control else (random, class_)
            first = _pair((WHITE, WHITE), row[:, :2], column[:, :2], equal)
            return first + _pair((LIGHT, DARK), row[:, 2:], column[:, 2:], unlike)

        return squares(False), squares(True)

    return _dataset("unlike_pair", count, size, patch, seed, layout, ("in one row", "in one column"))


def near_pair(
    *, count: int = 4000, size: tuple[int, int] = (20, 20), patch: int = 4, control: bool = False, seed: int = 0
) -> Dataset:
    """A white square next to another, in its row or in its column, which is the class, and white squares farther away.

    Each patch in the row and in the column of the first square, two or more away from it, is white with probability 1/2.
    A gate depends on content alone, so it has to weigh near and far squares equally. In the control the far squares are
    dark. Best accuracy: 1. Chance, and the accuracy of a bag of patches: 1/2.

    Args:
        count: Number of training images; there are a quarter as many test images.
        size: Height and width of the images.
        patch: Side of the squares in pixels.
        control: Makes the far squares dark, so that their content differs from that of the near one.
        seed: Seed of all random choices.
    """
    rows, columns = _grid("near_pair", size, patch, 3)
    far = DARK if control else WHITE

    def layout(pairs: int, generator: torch.Generator) -> tuple[list[Square], list[Square]]:
        row, column = (torch.randint(side, (pairs,), generator=generator) for side in (rows, columns))
        near_row, near_column = (_neighbor(at, side, generator) for at, side in ((row, rows), (column, columns)))
        fixed: list[Square] = [(WHITE, row, column)]
        for at, side in ((row, rows), (column, columns)):
            for cell in range(side):  # where there is no square, the first one is drawn again
                drawn = (torch.rand(pairs, generator=generator) < 0.5) & ((at - cell).abs() > 1)
                other = torch.where(drawn, cell, at)
                level = torch.where(drawn, far, WHITE)
                fixed.append((level, other, column) if at is row else (level, row, other))
        return [*fixed, (WHITE, row, near_column)], [*fixed, (WHITE, near_row, column)]

    return _dataset("near_pair", count, size, patch, seed, layout, ("near in the row", "near in the column"))


def diagonal_pair(
    *, count: int = 4000, size: tuple[int, int] = (16, 16), patch: int = 4, control: bool = False, seed: int = 0
) -> Dataset:
    """Two white squares, the left one above the right one or below it; the class is which.

    The classes differ by an exchange of two rows, or of two columns, to which counting along rows (columns) is invariant:
    without noise, ``sape2`` along one axis gives both classes the same features, and only the combination of both axes
    distinguishes them. In the control both squares are in one row or in one column, which is the class, so that the
    content of single rows and columns differs. Best accuracy: 1. Chance, and the accuracy of a bag of patches: 1/2.

    Args:
        count: Number of training images; there are a quarter as many test images.
        size: Height and width of the images.
        patch: Side of the squares in pixels.
        control: Puts both squares in one row or in one column.
        seed: Seed of all random choices.
    """
    rows, columns = _grid("diagonal_pair", size, patch, 2)

    def layout(pairs: int, generator: torch.Generator) -> tuple[list[Square], list[Square]]:
        row, column = (_distinct(pairs, side, 2, generator).sort(1).values for side in (rows, columns))
        if control:
            vertical = torch.ones(pairs, dtype=torch.bool)
            return _pair((WHITE, WHITE), row, column, ~vertical), _pair((WHITE, WHITE), row, column, vertical)
        (top, bottom), (left, right) = row.unbind(1), column.unbind(1)
        return [(WHITE, top, left), (WHITE, bottom, right)], [(WHITE, top, right), (WHITE, bottom, left)]

    names = ("in one row", "in one column") if control else ("falling to the right", "rising to the right")
    return _dataset("diagonal_pair", count, size, patch, seed, layout, names)


def _grid(name: str, size: tuple[int, int], patch: int, least: int) -> tuple[int, int]:
    """Returns the rows and columns of patches; raises an InputError if there are fewer than ``least`` of either."""
    if patch < 1 or any(side % patch or side // patch < least for side in size):
        raise InputError(
            f"data {name!r} got size={size}, patch={patch}; "
            f"choose a patch that divides height and width into {least} rows and columns or more"
        )
    return size[0] // patch, size[1] // patch


def _distinct(count: int, side: int, number: int, generator: torch.Generator) -> Tensor:
    """Returns (count, number): for each image ``number`` different random integers from 0 to ``side`` − 1."""
    return torch.rand(count, side, generator=generator).argsort(1)[:, :number]


def _neighbor(at: Tensor, side: int, generator: torch.Generator) -> Tensor:
    """Returns ``at`` (n,) plus or minus 1 at random, within 0 to ``side`` − 1."""
    step = 2 * torch.randint(2, at.shape, generator=generator) - 1
    return torch.where((at + step < 0) | (at + step >= side), at - step, at + step)


def _pair(levels: tuple[int, int], row: Tensor, column: Tensor, vertical: Tensor) -> list[Square]:
    """Returns two squares, in one column where ``vertical`` (n,) is True and otherwise in one row.

    ``row`` and ``column`` (n, 2) are the rows and columns to choose from; the first square has the first of both.
    """
    second = torch.where(vertical, row[:, 1], row[:, 0]), torch.where(vertical, column[:, 0], column[:, 1])
    return [(levels[0], row[:, 0], column[:, 0]), (levels[1], *second)]


def _dataset(
    name: str, count: int, size: tuple[int, int], patch: int, seed: int, layout: Layout, classes: tuple[str, str]
) -> Dataset:
    """Draws the squares that ``layout`` gives for both classes on noise, and returns the data set.

    A square of the second class exchanges its position with a patch of noise, so that both images have the same patches.
    """

    def make(count: int, seed: int) -> Split:
        generator = torch.Generator().manual_seed(seed)
        first = second = faint_noise(count // 2, size, generator)
        noise = patchify(first, (patch, patch)).unflatten(2, (patch, patch))  # (n, N, patch, patch)
        index, square = torch.arange(len(first)), (patch, patch)
        for (gray, row, column), (_, new_row, new_column) in zip(*layout(len(first), generator), strict=True):
            level = torch.as_tensor(gray).expand(len(first))[:, None, None]
            corner, new_corner = (torch.stack(both, 1) * patch for both in ((row, column), (new_row, new_column)))
            first = paste(first, level, square, corner)
            second = paste(second, noise[index, new_row * (size[1] // patch) + new_column], square, corner)
            second = paste(second, level, square, new_corner)
        return Split(torch.stack([first, second], 1).flatten(0, 1), torch.arange(2 * len(first)) % 2)

    train, test = (make(*part) for part in split_sizes(f"data {name!r}", count, seed, size))
    return normalized(train, test, classes)

"""Views: what can be done to any data set before a model is trained and tested on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import torch

from vitpos.data.dataset import Dataset, Split, View, shortened
from vitpos.data.image_files import Pictures
from vitpos.errors import UserError
from vitpos.patches import permutation, permutations, rearrange


def only(*, classes: tuple[int, ...] = (6, 9)) -> View:
    """The images of some classes alone, in training and test, labelled 0, 1, … in the order given."""

    def apply(data: Dataset) -> Dataset:
        if not classes or not set(classes) <= set(range(len(data.classes))) or len(set(classes)) < len(classes):
            raise UserError(
                f"view 'only' got classes {classes}; choose different ones from 0 to {len(data.classes) - 1}"
            )
        wanted = torch.tensor(classes)

        def pick(split: Split) -> Split:
            is_class = split.labels[:, None] == wanted  # (n, chosen)
            kept = is_class.any(1)
            return replace(split.take(kept.nonzero()[:, 0]), labels=is_class[kept].long().argmax(1))

        return replace(_each(data, pick), classes=tuple(data.classes[c] for c in classes))

    return View(apply)


def part(*, fraction: float = 1.0, limit: int | None = None, seed: int = 0) -> View:
    """A share of the training images, or so many at most, drawn once from a seed; the test images stay."""
    return View(lambda data: shortened(data, fraction, limit, seed=seed))


def held(*, fraction: float = 0.1, seed: int = 0) -> View:
    """Tested on a share of the training images, which are kept out of training, in place of the test images.

    For choosing settings: what is chosen by the test images is not measured by them.
    """

    def apply(data: Dataset) -> Dataset:
        count = round(fraction * len(data.train))
        if not 0 < count < len(data.train):
            raise UserError(f"view 'held' got fraction={fraction} of {len(data.train)} images; keep some for both")
        order = permutation(len(data.train), seed=seed)
        return replace(data, train=data.train.take(order[count:]), test=data.train.take(order[:count]))

    return View(apply)


def jigsaw(*, grid: tuple[int, int] = (7, 7), per: Literal["set", "image"] = "set", seed: int = 0) -> View:
    """Pictures cut along a grid and rearranged, in training and test, by one permutation or by one for each image.

    ``per="set"``: the one permutation that ``seed`` stands for, which the evaluation ``jigsaw`` uses too.
    ``per="image"``: every image has a permutation of its own, drawn once from ``seed``, so that slots tell nothing.
    """
    cells = grid[0] * grid[1]

    def shuffle(split: Split, seed: int) -> Split:
        if isinstance(split.images, Pictures):
            raise UserError("view 'jigsaw' needs pictures in memory; for files set train.augment to 'jigsaw(…)'")
        each = permutations(len(split), cells, seed=seed) if per == "image" else permutation(cells, seed=seed)
        return Split(rearrange(split.images, grid, each), split.labels)

    def apply(data: Dataset) -> Dataset:
        if per == "image":  # test images must not repeat the training images' permutations
            return replace(data, train=shuffle(data.train, seed), test=shuffle(data.test, seed + 1))
        return _each(data, lambda split: shuffle(split, seed))

    return View(apply)


def _each(data: Dataset, change: Callable[[Split], Split]) -> Dataset:
    return replace(data, train=change(data.train), test=change(data.test))

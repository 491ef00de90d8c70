"""A data set as tensors in memory, and views that make one data set of another."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import torch
from torch import Tensor

from vitpos.data import DATASETS
from vitpos.data.image_files import Pictures
from vitpos.errors import UserError
from vitpos.patches import permutation


@dataclass(frozen=True)
class Split:
    """Images (n, C, height, width) as bytes, in memory or in files, and their labels (n,)."""

    images: Tensor | Pictures
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, index: Tensor) -> Split:
        """Some of the images."""
        images = self.images.take(index) if isinstance(self.images, Pictures) else self.images[index]
        return Split(images, self.labels[index])

    def first(self, count: int) -> Split:
        """The first images alone."""
        return self.take(torch.arange(min(count, len(self))))

    def batches(self, indices: Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        """Images and labels of one batch after the other, as training sees them."""
        images = (
            self.images.batches(indices) if isinstance(self.images, Pictures) else (self.images[i] for i in indices)
        )
        return zip(images, (self.labels[index] for index in indices), strict=True)


@dataclass(frozen=True)
class Dataset:
    """A training and a test split with class names, and the mean and deviation that inputs are normalised by."""

    train: Split
    test: Split
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    spec: str = ""  # what it was loaded by, if it was
    _parts: dict[tuple[int, int], Dataset] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of a picture."""
        channels, height, width = self.train.images.shape[1:]
        return channels, height, width

    def inputs(self, images: Tensor) -> Tensor:
        """Bytes (B, C, height, width) as the normalised numbers that a model reads."""
        mean, std = (torch.tensor(v, device=images.device).view(-1, 1, 1) for v in (self.mean, self.std))
        return images.to(torch.float32, copy=True).sub_(255 * mean).div_(255 * std)

    def some(self, limit: int | None, *, seed: int = 0) -> Dataset:
        """The data with so many of its test images, drawn by a seed from all of them, in their order; itself for all.

        Made once for each limit and seed, so that answers on it can be remembered.
        """
        if limit is not None and limit < 1:
            raise UserError(f"an evaluation got limit={limit}; take 1 image or more, or limit=None for all")
        if limit is None or limit >= len(self.test):
            return self
        if (limit, seed) not in self._parts:
            drawn = permutation(len(self.test), seed=seed)[:limit].sort().values
            self._parts[limit, seed] = replace(self, test=self.test.take(drawn))
        return self._parts[limit, seed]

    def __add__(self, view: View) -> Dataset:
        if not isinstance(view, View):
            raise UserError("only a view can be added to data, as in 'mnist + jigsaw'; one set does not add to another")
        return view.apply(self)


@dataclass(frozen=True)
class View:
    """What ``data + view`` does to a data set."""

    apply: Callable[[Dataset], Dataset]

    def __add__(self, other: object) -> Dataset:
        raise UserError("a view comes after the data it looks at; write 'mnist + VIEW', not 'VIEW + mnist'")


def shortened(data: Dataset, fraction: float, limit: int | None, *, seed: int = 0) -> Dataset:
    """A share of the training images, or so many at most, drawn once from a seed; the test images stay."""
    if not 0 < fraction <= 1 or (limit is not None and limit < 1):
        raise UserError(f"data got fraction={fraction}, limit={limit}; take a share up to 1 and a limit from 1")
    count = min(max(round(fraction * len(data.train)), 1), limit or len(data.train))
    if count == len(data.train):
        return data
    return replace(data, train=data.train.take(permutation(len(data.train), seed=seed)[:count]))


@lru_cache(maxsize=4)
def load(spec: str) -> Dataset:
    """The data set that a spec names; the last few stay in memory."""
    data = DATASETS.build(spec)
    if not isinstance(data, Dataset):
        raise UserError(f"data {spec!r} is a view without a data set; write 'mnist + {spec}'")
    return replace(data, spec=spec)

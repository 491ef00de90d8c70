"""A data set as tensors in memory, and views that make one data set of another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from vitpos.data import DATASETS
from vitpos.errors import UserError


@dataclass(frozen=True)
class Split:
    """Images (n, C, height, width) as bytes, and their labels (n,)."""

    images: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def first(self, count: int) -> Split:
        """The first images alone."""
        return Split(self.images[:count], self.labels[:count])


@dataclass(frozen=True)
class Dataset:
    """A training and a test split with class names, and the mean and deviation that inputs are normalised by."""

    train: Split
    test: Split
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of a picture."""
        channels, height, width = self.train.images.shape[1:]
        return channels, height, width

    def inputs(self, images: Tensor) -> Tensor:
        """Bytes (B, C, height, width) as the normalised numbers that a model reads."""
        mean, std = (torch.tensor(v, device=images.device).view(-1, 1, 1) for v in (self.mean, self.std))
        return images.to(torch.float32, copy=True).sub_(255 * mean).div_(255 * std)

    def __add__(self, view: View) -> Dataset:
        if not isinstance(view, View):
            raise UserError("only a view can be added to data, as in 'mnist + jigsaw'; one set does not add to another")
        return view.apply(self)


@dataclass(frozen=True)
class View:
    """What ``data + view`` does to a data set."""

    apply: Callable[[Dataset], Dataset]

    def __add__(self, other: object) -> Dataset:
        raise UserError("a view comes after the data it looks at; write 'mnist + jigsaw', not 'jigsaw + mnist'")


@lru_cache(maxsize=4)
def load(spec: str) -> Dataset:
    """The data set that a spec names; the last few stay in memory."""
    data = DATASETS.build(spec)
    if not isinstance(data, Dataset):
        raise UserError(f"data {spec!r} is a view without a data set; write 'mnist + {spec}'")
    return data

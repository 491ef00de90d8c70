"""``Split``, ``Dataset`` and ``View``: labeled images, a train and a test split, and changes of a whole data set."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from torch import Tensor, nn

from vitpos.data import DATASETS
from vitpos.data.image_files import ImageFiles
from vitpos.errors import InputError
from vitpos.patches import seeded_permutation


@dataclass(frozen=True)
class Split:
    """The images and labels of a train or test split.

    ``images`` are uint8 (n, C, height, width), in memory or in files; ``labels`` (n,) are class numbers.
    """

    images: Tensor | ImageFiles
    labels: Tensor

    def __post_init__(self) -> None:
        if isinstance(self.images, Tensor) and self.images.dtype != torch.uint8:
            raise InputError(f"a Split got images of type {self.images.dtype}; give uint8, 0 to 255")
        if len(self.images) != len(self.labels):
            raise InputError(f"a Split got {len(self.labels)} labels for {len(self.images)} images; give one per image")

    def __len__(self) -> int:
        return len(self.labels)

    def subset(self, index: Tensor) -> Split:
        """Returns a split with the images and labels at ``index`` (m,)."""
        images = self.images.subset(index) if isinstance(self.images, ImageFiles) else self.images[index]
        return Split(images, self.labels[index])

    def head(self, count: int) -> Split:
        """Returns a split with the first ``count`` images, or all if there are fewer."""
        return self.subset(torch.arange(min(count, len(self))))

    def batches(self, indices: Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        """Yields training batches (images, labels): uint8 (B, C, height, width) and class numbers (B,).

        Each tensor (B,) in ``indices`` has the indices of the images of one batch. Images that are read from files are
        cropped at random.
        """
        images = (
            self.images.batches(indices) if isinstance(self.images, ImageFiles) else (self.images[i] for i in indices)
        )
        return zip(images, (self.labels[index] for index in indices), strict=True)


@dataclass(frozen=True)
class Dataset:
    """A train and a test split with class names, and the channel means and stds that inputs are normalized by.

    ``mean`` and ``std`` are those of pixel values from 0 to 1.
    """

    train: Split
    test: Split
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    spec: str = ""  # the spec that it was loaded from, if any

    @property
    def shape(self) -> tuple[int, int, int]:
        """Returns (channels, height, width) of an image."""
        channels, height, width = self.train.images.shape[1:]
        return channels, height, width

    def normalize(self, images: Tensor) -> Tensor:
        """Converts uint8 images (B, C, height, width) to float32 inputs of that shape.

        Values are scaled to 0…1; then the channel means are subtracted and the result is divided by the channel stds.
        """
        mean, std = (torch.tensor(v, device=images.device).view(-1, 1, 1) for v in (self.mean, self.std))
        return images.to(torch.float32, copy=True).sub_(255 * mean).div_(255 * std)

    def sample_test(self, max_images: int | None, *, seed: int = 0) -> Dataset:
        """Returns the data set with ``max_images`` random test images, in their original order; None keeps all."""
        if max_images is not None and max_images < 1:
            raise InputError(
                f"an evaluation got max_images={max_images}; take 1 image or more, or max_images=None for all"
            )
        if max_images is None or max_images >= len(self.test):
            return self
        index = seeded_permutation(len(self.test), seed=seed)[:max_images].sort().values
        return replace(self, test=self.test.subset(index))

    def with_test_images(self, images: Tensor, model: nn.Module) -> Dataset:
        """Returns a copy of the data set whose test images are ``images``, uint8 (n, C, height, width).

        Their labels are the classes that ``model`` predicts for them.
        """
        with torch.inference_mode():
            logits = model(self.normalize(images.to(next(model.parameters()).device)))
        return replace(self, test=Split(images, logits.argmax(1).cpu().clone()))

    def __add__(self, view: View) -> Dataset:
        if not isinstance(view, View):
            raise InputError("only a view can be added to data, as in 'mnist + permute_patches'; give one data set")
        return view.apply(self)


@dataclass(frozen=True)
class View:
    """A change of a whole data set, such as permuted patches: ``data + view`` returns the changed data set."""

    apply: Callable[[Dataset], Dataset]

    def __add__(self, other: object) -> Dataset:
        raise InputError("a view must follow its data set; write 'mnist + VIEW', not 'VIEW + mnist'")


def take_subset(
    data: Dataset, fraction: float, limit: int | None, test_limit: int | None = None, *, seed: int = 0
) -> Dataset:
    """Returns the data set with a random part of its images.

    Args:
        fraction: Fraction of the training images, above 0 and up to 1.
        limit: Maximum number of training images; None for no limit.
        test_limit: Maximum number of test images; None for no limit.
        seed: Seed of the random choice.
    """
    if not 0 < fraction <= 1 or (limit is not None and limit < 1):
        raise InputError(f"data got fraction={fraction}, limit={limit}; take a fraction up to 1 and a limit from 1")
    if test_limit is not None and test_limit < 1:
        raise InputError(f"data got test_limit={test_limit}; take 1 test image or more, or None for all")
    data = data.sample_test(test_limit, seed=seed)
    count = min(max(round(fraction * len(data.train)), 1), limit or len(data.train))
    if count == len(data.train):
        return data
    return replace(data, train=data.train.subset(seeded_permutation(len(data.train), seed=seed)[:count]))


@lru_cache(maxsize=4)
def load(spec: str) -> Dataset:
    """Returns the data set of a spec such as ``"mnist + subset(limit=1000)"``; the last four loaded sets stay in memory."""
    data = DATASETS.build(spec)
    if not isinstance(data, Dataset):
        raise InputError(f"data {spec!r} is a view without a data set; write 'mnist + {spec}'")
    return replace(data, spec=spec)

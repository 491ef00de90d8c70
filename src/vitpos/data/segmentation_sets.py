"""Image-mask sets for the evaluation of segmentation: ``digit_scenes`` of MNIST and ``mask_folder`` of your own files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from vitpos.data.dataset import Split
from vitpos.data.image_files import read_image
from vitpos.data.image_folder import EXTENSIONS
from vitpos.data.image_ops import to_shape
from vitpos.data.mnist import mnist
from vitpos.data.synthetic import paste, split_sizes
from vitpos.errors import InputError
from vitpos.patches import seeded_permutations

IGNORE_INDEX = 255  # a pixel of this value in a mask has no class
INK = 64  # a pixel this bright belongs to its digit, and so do its neighbors
MIN_DIGIT = 8  # height and width of the smallest legible digit


@dataclass(frozen=True)
class SegmentationSplit:
    """The images and masks of a train or test split.

    ``images`` are uint8 (n, C, height, width); ``masks``, uint8 (n, height, width), hold the class number of each pixel, or
    255 for a pixel without a class.
    """

    images: Tensor
    masks: Tensor

    def __len__(self) -> int:
        return len(self.images)

    def head(self, count: int) -> Self:
        """Returns a split with the first ``count`` images and masks."""
        return type(self)(self.images[:count], self.masks[:count])


@dataclass(frozen=True)
class SegmentationSet:
    """A data set for segmentation: a train split, a test split, and the number of classes."""

    train: SegmentationSplit
    test: SegmentationSplit
    classes: int


def digit_scenes(
    shape: tuple[int, int, int],
    *,
    count: int = 1000,
    grid: tuple[int, int] = (2, 2),
    filled: int = 3,
    seed: int = 0,
) -> SegmentationSet:
    """MNIST digits in random cells of a grid on black: class 0 is the background, 1 to 10 are the digits 0 to 9.

    A digit is 6/7 as large as the shorter side of a cell and lies anywhere in the cell. Its mask is its ink and the
    pixels that touch it. Training scenes use training digits, test scenes test digits.

    Args:
        shape: Channels, height and width of the images.
        count: Number of training scenes; there are a quarter as many test scenes.
        grid: Rows and columns of cells.
        filled: Number of cells with a digit.
        seed: Seed of all random choices.
    """
    _, height, width = shape
    cell = torch.tensor([height, width]) // torch.tensor(grid).clamp_min(1)
    side = int(cell.min()) * 6 // 7
    if min(grid) < 1 or not 1 <= filled <= grid[0] * grid[1] or side < MIN_DIGIT:
        raise InputError(
            f"segmentation 'digit_scenes' got grid={grid}, filled={filled} for images of {height}x{width}; "
            "choose cells of 10 pixels or more and fill 1 or more of them"
        )

    def make(split: Split, count: int, seed: int) -> SegmentationSplit:
        generator = torch.Generator().manual_seed(seed)
        chosen = torch.randint(len(split), (filled, count), generator=generator)
        cells = seeded_permutations(count, grid[0] * grid[1], seed=seed)[:, :filled].T
        images = masks = torch.zeros(count, 1, height, width, dtype=torch.uint8)
        for digit, slot in zip(chosen, cells, strict=True):  # (count,) each
            corner = torch.stack([slot // grid[1], slot % grid[1]], 1) * cell
            corner += (torch.rand(count, 2, generator=generator) * (cell - side + 1)).long()
            ink = to_shape(split.images[digit], (1, side, side))
            own = F.max_pool2d(ink.float(), 3, stride=1, padding=1) >= INK
            images = paste(images, ink[:, 0], (side, side), corner)
            masks = paste(masks, own[:, 0] * (split.labels[digit] + 1).view(-1, 1, 1), (side, side), corner)
        return SegmentationSplit(to_shape(images, shape), masks[:, 0])

    digits = mnist()
    train, test = split_sizes("segmentation 'digit_scenes'", count, seed, shape[1:])
    return SegmentationSet(make(digits.train, *train), make(digits.test, *test), 11)


def mask_folder(shape: tuple[int, int, int], *, path: str = "") -> SegmentationSet:
    """Your own images and masks: ``path`` contains ``images/`` and ``masks/`` with files of the same names.

    A mask is a palette or grayscale PNG as large as its image, with class numbers from 0; 255 is ignored. Both are
    resized to ``shape`` (channels, height, width) without keeping their aspect ratio, masks by the nearest pixel. Every
    fifth pair, sorted by name, is a test pair. All pairs are kept in memory.
    """
    root = Path(path).expanduser()
    if not path or not root.is_dir():
        raise InputError(
            f"segmentation 'mask_folder' got path={path!r}, which is not a folder; give one with images/ and masks/"
        )
    images, masks = _by_stem(root / "images", EXTENSIONS), _by_stem(root / "masks", {".png"})  # JPEG changes classes
    names = sorted(images.keys() & masks.keys())
    if len(names) < 5:
        raise InputError(
            f"segmentation 'mask_folder' found {len(names)} pairs in {root}; put 5 or more images into images/ and PNG "
            "masks with the same names into masks/"
        )
    read = [_read(images[name], masks[name], shape) for name in names]
    pairs = SegmentationSplit(torch.stack([image for image, _ in read]), torch.stack([mask for _, mask in read]))
    is_test = torch.arange(len(names)) % 5 == 4
    labeled = pairs.masks[pairs.masks != IGNORE_INDEX]
    if not len(labeled):
        raise InputError(
            f"segmentation 'mask_folder': all pixels of the masks in {root} are 255; give class numbers from 0"
        )
    train, test = (SegmentationSplit(pairs.images[some], pairs.masks[some]) for some in (~is_test, is_test))
    return SegmentationSet(train, test, int(labeled.max()) + 1)


def _by_stem(folder: Path, extensions: set[str]) -> dict[str, Path]:
    """Returns name without extension → path of the files in a folder that have one of ``extensions``, such as ``.png``."""
    found = sorted(folder.iterdir()) if folder.is_dir() else []
    return {file.stem: file for file in found if file.suffix.lower() in extensions}


def _read(image: Path, mask: Path, shape: tuple[int, int, int]) -> tuple[Tensor, Tensor]:
    """Reads an image file and its mask file and resizes both: returns uint8 (C, height, width) and (height, width).

    ``shape`` is (C, height, width).
    """
    channels, height, width = shape
    decoded, classes = read_image(image, "L" if channels == 1 else "RGB"), read_image(mask, None)
    if classes.mode not in ("P", "L"):
        raise InputError(
            f"the mask {mask} is of mode {classes.mode}; save it as a palette or grayscale PNG of class numbers"
        )
    if decoded.size != classes.size:
        (image_width, image_height), (mask_width, mask_height) = decoded.size, classes.size
        raise InputError(
            f"the mask {mask} has {mask_height}x{mask_width} pixels and its image {image_height}x{image_width}; "
            "give them the same size"
        )
    pixels = np.atleast_3d(np.asarray(decoded.resize((width, height), Image.Resampling.BILINEAR)))
    labels = np.asarray(classes.resize((width, height), Image.Resampling.NEAREST))
    return torch.from_numpy(pixels.transpose(2, 0, 1).copy()), torch.from_numpy(labels.copy())

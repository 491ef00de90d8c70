"""Image files that are decoded on demand, cropped and resized to one size."""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from vitpos.errors import InputError, RunError
from vitpos.printable import sanitize
from vitpos.regular_files import open_regular

Box = tuple[float, float, float, float]  # left, upper, right, lower, in pixels
PREFETCH = 2  # batches that are decoded while another is trained on
TEST_CROP = 224 / 256  # side of the center crop of test images, as a fraction of the largest one that fits
INTERPOLATIONS = ("nearest", "bilinear", "bicubic", "lanczos")


@dataclass(frozen=True)
class ImageFiles:
    """Image files that can be indexed like a uint8 tensor (n, 3, height, width) and are decoded when they are read.

    Indexing resizes an image and takes the center crop, by default as in ImageNet's test protocol (resize to 256 and crop
    to 224). An image that has the height and width ``size`` already is neither resized nor cropped.
    ``batches`` reads training images: a random crop with at least the fraction ``crop`` of the area and an aspect ratio of
    3/4 to 4/3, mirrored with probability 1/2 if ``mirror``. With ``crop=1`` and without ``mirror`` nothing is random.
    ``size`` is the height and width of the result.

    Args:
        test_crop: Side of the center crop, as a fraction of the largest crop that fits into the image.
        keep_aspect: Whether the center crop has the aspect ratio of the result; otherwise that of the image.
        interpolation: ``nearest``, ``bilinear``, ``bicubic`` or ``lanczos``.
    """

    files: tuple[Path, ...]
    size: tuple[int, int]
    crop: float
    mirror: bool
    test_crop: float = TEST_CROP
    keep_aspect: bool = True
    interpolation: str = "bicubic"

    def __len__(self) -> int:
        return len(self.files)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Returns (n, 3, height, width), as of a tensor of all images."""
        return len(self.files), 3, *self.size

    def subset(self, index: Tensor) -> Self:
        """Returns an `ImageFiles` of the files at ``index`` (m,)."""
        return replace(self, files=tuple(self.files[i] for i in index.tolist()))

    def __getitem__(self, index: slice | Tensor) -> Tensor:
        chosen = self.files[index] if isinstance(index, slice) else [self.files[i] for i in index.tolist()]
        with ThreadPoolExecutor(torch.get_num_threads()) as pool:
            return _stack(pool.map(self._read, chosen), self.shape)

    def batches(self, indices: Sequence[Tensor]) -> Iterator[Tensor]:
        """Yields training batches of random crops, uint8 (B, 3, height, width), which other threads read ahead.

        Each tensor (B,) in ``indices`` has the indices of the images of one batch. The crops depend on torch's global seed.
        """
        seeds = [torch.randint(2**62, (len(index),)).tolist() for index in indices]
        waiting: deque[list[Future[Tensor]]] = deque()
        with ThreadPoolExecutor(torch.get_num_threads()) as pool:
            for index, crop_seeds in zip(indices, seeds, strict=True):
                files = [self.files[i] for i in index.tolist()]
                waiting.append([pool.submit(self._read, *both) for both in zip(files, crop_seeds, strict=True)])
                if len(waiting) > PREFETCH:
                    yield _stack((future.result() for future in waiting.popleft()), self.shape)
            while waiting:
                yield _stack((future.result() for future in waiting.popleft()), self.shape)

    def _read(self, file: Path, seed: int | None = None) -> Tensor:
        """Returns one decoded image, uint8 (3, height, width): its center crop, or a random crop if a seed is given."""
        height, width = self.size
        image = read_image(file)
        rng = random.Random(seed)
        centered = seed is None or self.crop == 1  # with crop=1 an image may still be mirrored
        box = self._center_crop(image.size) if centered else _random_crop(image.size, self.crop, rng)
        pixels = np.asarray(image.resize((width, height), Image.Resampling[self.interpolation.upper()], box))
        if seed is not None and self.mirror and rng.random() < 0.5:
            pixels = pixels[:, ::-1]
        return torch.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1)))

    def _center_crop(self, image: tuple[int, int]) -> Box:
        """Returns the center crop of an image (width, height) as a box (left, upper, right, lower) in its pixels.

        By default the box is 224/256 as wide and high as the largest one that has the aspect ratio of the result. An image
        of the size of the result is taken whole, so that its pixels are unchanged.
        """
        width, height = image
        if (height, width) == self.size:
            return 0, 0, width, height
        if not self.keep_aspect:
            return _centered(image, width * self.test_crop, height * self.test_crop)
        scale = min(width / self.size[1], height / self.size[0]) * self.test_crop
        return _centered(image, self.size[1] * scale, self.size[0] * scale)


def read_image(file: Path, mode: str | None = "RGB") -> Image.Image:
    """Reads an image file and converts it to ``mode`` (``"RGB"``, ``"L"``); None leaves it as stored.

    A conversion scales 16-bit images to 8 bits, which Pillow alone would clip at 255.
    """
    try:
        with open_regular(file) as stream, Image.open(stream) as opened:
            if mode is None:
                opened.load()
                return opened.copy()
            if opened.mode.startswith("I"):
                pixels = (np.asarray(opened).astype(np.int64) // 257).clip(0, 255).astype(np.uint8)
                return Image.fromarray(pixels).convert(mode)
            return opened.convert(mode)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        cause = sanitize(error.strerror if isinstance(error, OSError) and error.strerror else error, limit=120)
        raise RunError(f"the image {file} cannot be read ({cause}); replace or delete it") from None


def read_images(files: Sequence[Path], shape: tuple[int, int, int], *, crop: bool = False) -> Tensor:
    """Reads image files of one shape (C, height, width) into a uint8 tensor (n, C, height, width).

    Args:
        crop: Resizes images of another size, cropping the center if their aspect ratio differs. By default they are
            rejected.
    """
    channels, height, width = shape
    loaded = []
    for file in files:
        try:
            image = read_image(file, "L" if channels == 1 else "RGB")
        except RunError as error:
            raise InputError(f"{error}, or give another") from None
        image = ImageOps.fit(image, (width, height)) if crop else image
        if image.size != (width, height):
            raise InputError(
                f"image {file} has {image.height}x{image.width} pixels, and the model takes {height}x{width}; "
                "resize it to that size"
            )
        loaded.append(torch.from_numpy(np.array(image).reshape(height, width, -1)).permute(2, 0, 1))
    return torch.stack(loaded)


def _random_crop(image: tuple[int, int], min_area: float, rng: random.Random) -> Box:
    """Returns a random box (left, upper, right, lower) in pixels, sampled as in torchvision's RandomResizedCrop.

    If ten sampled boxes do not fit, the largest centered box with an aspect ratio from 3/4 to 4/3 is returned.

    Args:
        image: Width and height of the image.
        min_area: Minimum area of the sampled boxes as a fraction of the image.
        rng: Source of random numbers.
    """
    width, height = image
    for _ in range(10):
        area = rng.uniform(min_area, 1) * width * height
        aspect = math.exp(rng.uniform(math.log(3 / 4), math.log(4 / 3)))
        box_width, box_height = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < box_width <= width and 0 < box_height <= height:
            left, upper = rng.randint(0, width - box_width), rng.randint(0, height - box_height)
            return left, upper, left + box_width, upper + box_height
    return _centered(image, min(width, height * 4 / 3), min(height, width * 4 / 3))


def _centered(image: tuple[int, int], width: float, height: float) -> Box:
    left, upper = (image[0] - width) / 2, (image[1] - height) / 2
    return left, upper, left + width, upper + height


def _stack(images: Iterator[Tensor], shape: tuple[int, int, int, int]) -> Tensor:
    """Stacks n images to a tensor of ``shape`` (n, 3, height, width); n may be 0."""
    found = list(images)
    return torch.stack(found) if found else torch.empty(0, *shape[1:], dtype=torch.uint8)

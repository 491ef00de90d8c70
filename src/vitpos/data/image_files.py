"""Pictures in files, read when they are needed and cut to one size."""

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
from PIL import Image
from torch import Tensor

from vitpos.errors import WorkError

Box = tuple[float, float, float, float]  # left, upper, right, lower, in pixels
AHEAD = 2  # batches that are read while another is trained on
MARGIN = 256 / 224  # the test's picture is resized to so many times its size before its centre is cut out


@dataclass(frozen=True)
class Pictures:
    """Files that, when indexed, give bytes (n, 3, height, width), in colour.

    Indexed, a picture is resized so that its shorter side, seen from ``size`` (height, width), has a margin of an
    eighth or so (256 for 224), and its centre is cut out. In training (``batches``) a random part is read instead, of at
    least ``crop`` of its area and an aspect of 3/4 to 4/3, mirrored half of the time if ``mirror``; with a crop of 1
    and without mirrors nothing is random.
    """

    files: tuple[Path, ...]
    size: tuple[int, int]
    crop: float
    mirror: bool

    def __len__(self) -> int:
        return len(self.files)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """(n, 3, height, width), as of a tensor."""
        return len(self.files), 3, *self.size

    def take(self, index: Tensor) -> Self:
        """Some of the pictures."""
        return replace(self, files=tuple(self.files[i] for i in index.tolist()))

    def __getitem__(self, index: slice | Tensor) -> Tensor:
        chosen = self.files[index] if isinstance(index, slice) else [self.files[i] for i in index.tolist()]
        with ThreadPoolExecutor(torch.get_num_threads()) as pool:
            return _stack(pool.map(self._read, chosen), self.shape)

    def batches(self, indices: Sequence[Tensor]) -> Iterator[Tensor]:
        """The pictures of each batch as training sees them, read ahead; torch's generator decides all that is random."""
        seeds = [torch.randint(2**62, (len(index),)).tolist() for index in indices]
        waiting: deque[list[Future[Tensor]]] = deque()
        with ThreadPoolExecutor(torch.get_num_threads()) as pool:
            for index, draws in zip(indices, seeds, strict=True):
                files = [self.files[i] for i in index.tolist()]
                waiting.append([pool.submit(self._read, *both) for both in zip(files, draws, strict=True)])
                if len(waiting) > AHEAD:
                    yield _stack((future.result() for future in waiting.popleft()), self.shape)
            while waiting:
                yield _stack((future.result() for future in waiting.popleft()), self.shape)

    def _read(self, file: Path, seed: int | None = None) -> Tensor:
        """One picture (3, height, width): its centre, or what the seed makes of it."""
        height, width = self.size
        try:
            with Image.open(file) as opened:
                picture = opened.convert("RGB")
        except (OSError, ValueError, Image.DecompressionBombError) as error:
            raise WorkError(f"the picture {file} cannot be read ({error}); replace or delete it") from None
        draw = random.Random(seed)
        still = seed is None or self.crop == 1  # the part that is read, not which way round
        box = _centre(picture.size, self.size) if still else _part(picture.size, self.crop, draw)
        pixels = np.asarray(picture.resize((width, height), Image.Resampling.BICUBIC, box))
        if seed is not None and self.mirror and draw.random() < 0.5:
            pixels = pixels[:, ::-1]
        return torch.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1)))


def _centre(picture: tuple[int, int], size: tuple[int, int]) -> Box:
    """The box of the centre, of the aspect of ``size``, without the margin."""
    width, height = picture
    scale = min(width / size[1], height / size[0]) / MARGIN
    return _middle(picture, size[1] * scale, size[0] * scale)


def _part(picture: tuple[int, int], least: float, draw: random.Random) -> Box:
    """A random box of at least ``least`` of the area; after ten that do not fit, the largest centre of a fair aspect."""
    width, height = picture
    for _ in range(10):
        area, aspect = draw.uniform(least, 1) * width * height, math.exp(draw.uniform(math.log(3 / 4), math.log(4 / 3)))
        across, down = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < across <= width and 0 < down <= height:
            left, upper = draw.randint(0, width - across), draw.randint(0, height - down)
            return left, upper, left + across, upper + down
    return _middle(picture, min(width, height * 4 / 3), min(height, width * 4 / 3))


def _middle(picture: tuple[int, int], across: float, down: float) -> Box:
    left, upper = (picture[0] - across) / 2, (picture[1] - down) / 2
    return left, upper, left + across, upper + down


def _stack(pictures: Iterator[Tensor], shape: tuple[int, int, int, int]) -> Tensor:
    """(n, 3, height, width), also of none."""
    found = list(pictures)
    return torch.stack(found) if found else torch.empty(0, *shape[1:], dtype=torch.uint8)

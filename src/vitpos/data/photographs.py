"""A few photographs of ordinary size, for whoever wants to see what an attack makes of them."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import torch

from vitpos.data.dataset import Dataset, Split
from vitpos.data.image_files import Pictures
from vitpos.data.image_folder import MEAN, STD
from vitpos.errors import UserError
from vitpos.patches import pair

FILES = ("astronaut.png", "chelsea.png", "coffee.png", "rocket.jpg", "motorcycle_left.png", "retina.jpg")


def photographs(*, size: int | tuple[int, int] = 224) -> Dataset:
    """Six photographs that come with scikit-image, a class each, brought to ``size`` (height, width).

    They are both the training and the test images: to be looked at, not to be learned from.
    """
    if min(pair(size)) < 1:
        raise UserError(f"data 'photographs' got size={size}; take 1 or more")
    package = find_spec("skimage")
    if package is None or package.origin is None:
        raise UserError("data 'photographs' come with scikit-image, which is not here; pip install scikit-image")
    files = tuple(Path(package.origin).parent / "data" / name for name in FILES)
    images = Pictures(files, pair(size), crop=1.0, mirror=False)[:]
    both = Split(images, torch.arange(len(files)))
    return Dataset(both, both, tuple(Path(name).stem for name in FILES), MEAN, STD)

"""Image files as the test images of a data set, to attack your own images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from PIL import ImageOps

from vitpos.data.dataset import Dataset, Split
from vitpos.data.image_files import read_image
from vitpos.errors import InputError, RunError
from vitpos.models.base import Classifier


def own(model: Classifier, data: Dataset, files: Sequence[Path], *, fit: bool = False) -> Dataset:
    """Returns the data set with these image files as test images, each labeled with the class that the model predicts.

    Args:
        fit: Resizes images to the model's size, cropping the center if their aspect ratio differs. By default images of
            another size are refused.
    """
    channels, height, width = data.shape
    loaded = []
    for file in files:
        try:
            image = read_image(file, "L" if channels == 1 else "RGB")
        except RunError as error:
            raise InputError(f"{error}, or give another") from None
        image = ImageOps.fit(image, (width, height)) if fit else image
        pixels = np.array(image).reshape(image.height, image.width, -1)
        if pixels.shape[:2] != (height, width):
            raise InputError(
                f"image {file} has {pixels.shape[0]}x{pixels.shape[1]} pixels, and the model takes {height}x{width}; "
                "resize it to that size"
            )
        loaded.append(torch.from_numpy(pixels).permute(2, 0, 1))
    images = torch.stack(loaded)
    with torch.inference_mode():
        labels = model(data.normalize(images.to(model.device))).argmax(1).cpu()
    return replace(data, test=Split(images, labels.clone()))

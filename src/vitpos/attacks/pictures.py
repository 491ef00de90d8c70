"""Pictures to attack that are one's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from PIL import ImageOps

from vitpos.data.dataset import Dataset, Split
from vitpos.data.image_files import read_image
from vitpos.errors import UserError, WorkError
from vitpos.models.base import Classifier


def own(model: Classifier, data: Dataset, files: Sequence[Path], *, fit: bool = False) -> Dataset:
    """A data set whose test images are these files, each with the label that the model gives it.

    ``fit``: pictures of another size are brought to the model's, their middle cut out where the shape differs; else
    they are refused.
    """
    channels, height, width = data.shape
    pictures = []
    for file in files:
        try:
            picture = read_image(file, "L" if channels == 1 else "RGB")
        except WorkError as error:
            raise UserError(f"{error}, or give another") from None
        picture = ImageOps.fit(picture, (width, height)) if fit else picture
        pixels = np.array(picture).reshape(picture.height, picture.width, -1)
        if pixels.shape[:2] != (height, width):
            raise UserError(
                f"the picture {file} has {pixels.shape[0]}x{pixels.shape[1]} pixels, and the model takes {height}x{width}; "
                "bring it to that size"
            )
        pictures.append(torch.from_numpy(pixels).permute(2, 0, 1))
    images = torch.stack(pictures)
    with torch.inference_mode():
        labels = model(data.normalize(images.to(model.device))).argmax(1).cpu()
    return replace(data, test=Split(images, labels.clone()))

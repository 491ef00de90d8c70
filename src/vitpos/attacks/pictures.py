"""Pictures to attack that are one's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps

from vitpos.data.base import Dataset, Split
from vitpos.errors import UserError
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
            with Image.open(file) as opened:
                picture = _bytes(opened).convert("L" if channels == 1 else "RGB")
                picture = ImageOps.fit(picture, (width, height)) if fit else picture
                pixels = np.array(picture).reshape(picture.height, picture.width, -1)
        except (OSError, ValueError, Image.DecompressionBombError) as error:
            raise UserError(f"the picture {file} cannot be read ({error}); give another") from None
        if pixels.shape[:2] != (height, width):
            raise UserError(
                f"the picture {file} has {pixels.shape[0]}x{pixels.shape[1]} pixels, and the model takes {height}x{width}; "
                "bring it to that size"
            )
        pictures.append(torch.from_numpy(pixels).permute(2, 0, 1))
    images = torch.stack(pictures)
    with torch.inference_mode():
        labels = model(data.inputs(images.to(next(model.parameters()).device))).argmax(1).cpu()
    return replace(data, test=Split(images, labels.clone()))


def _bytes(picture: Image.Image) -> Image.Image:
    """A picture of 16 bits, which the library would cut off at 255, in 8."""
    if not picture.mode.startswith("I"):
        return picture
    return Image.fromarray((np.asarray(picture).astype(np.int64) // 257).clip(0, 255).astype(np.uint8))

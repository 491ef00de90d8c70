"""Writes folders of images and masks for tests."""

import numpy as np
from PIL import Image


def save_mask_folder(folder, images, masks, mode="L"):
    """Writes images and masks (n, height, width) as PNG files; returns the spec of the folder."""
    for name, values in (("images", images), ("masks", masks)):
        (folder / name).mkdir(parents=True, exist_ok=True)
        for n, value in enumerate(np.asarray(values, np.uint8)):
            image = Image.fromarray(value)
            if name == "masks" and mode == "P":
                image = Image.frombytes("P", image.size, image.tobytes())
                image.putpalette([7, 7, 7] * 256)
            image.save(folder / name / f"{n:02}.png")
    return f"mask_folder(path={str(folder)!r})"

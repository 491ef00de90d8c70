"""Any folder of pictures and the masks that belong to them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from vitpos.data.image_folder import KINDS
from vitpos.data.segmentation_sets import IGNORED, Scenes, SceneSet
from vitpos.errors import UserError, WorkError


def pairs(shape: tuple[int, int, int], *, path: str = "") -> SceneSet:
    """Pictures and masks of your own: ``pairs(path='…')`` has ``images/`` and ``masks/`` with files of the same names.

    A mask is a palette or grey PNG, as large as its picture, of class numbers from 0; 255 is no class. Both are brought
    to the model's shape, stretched where the aspect differs, masks by the nearest pixel. Every fifth pair, by name, is
    for the test. All pairs are kept in memory.
    """
    root = Path(path).expanduser()
    if not path or not root.is_dir():
        raise UserError(f"scenes 'pairs' got path={path!r}, which is no folder; give one with images/ and masks/")
    images, masks = _files(root / "images", KINDS), _files(root / "masks", {".png"})  # others lose class numbers
    names = sorted(images.keys() & masks.keys())
    if len(names) < 5:
        raise UserError(
            f"scenes 'pairs' found {len(names)} pairs in {root}; put 5 or more pictures into images/ and PNG masks "
            "with the same names into masks/"
        )
    read = [_read(images[name], masks[name], shape) for name in names]
    both = Scenes(torch.stack([image for image, _ in read]), torch.stack([mask for _, mask in read]))
    test = torch.arange(len(names)) % 5 == 4
    known = both.masks[both.masks != IGNORED]
    if not len(known):
        raise UserError(f"scenes 'pairs': the masks in {root} have no pixel but 255; give numbers of classes from 0")
    train, held = (Scenes(both.images[some], both.masks[some]) for some in (~test, test))
    return SceneSet(train, held, int(known.max()) + 1)


def _files(folder: Path, kinds: set[str]) -> dict[str, Path]:
    """The files of some kinds in a folder by their names without what follows the dot."""
    found = sorted(folder.iterdir()) if folder.is_dir() else []
    return {file.stem: file for file in found if file.suffix.lower() in kinds}


def _read(image: Path, mask: Path, shape: tuple[int, int, int]) -> tuple[Tensor, Tensor]:
    """A picture (C, height, width) and its mask (height, width)."""
    channels, height, width = shape
    try:
        with Image.open(image) as opened:
            picture = opened.convert("L" if channels == 1 else "RGB")
        with Image.open(mask) as opened:
            opened.load()
            classes = opened.copy()
    except (OSError, ValueError, Image.DecompressionBombError) as error:
        raise WorkError(f"the pair {image} and {mask.name} cannot be read ({error}); replace or delete it") from None
    if classes.mode not in ("P", "L"):
        raise UserError(f"the mask {mask} is of mode {classes.mode}; save it as a palette or grey PNG of class numbers")
    if picture.size != classes.size:
        (wide, high), (across, down) = picture.size, classes.size
        raise UserError(
            f"the mask {mask} has {down}x{across} pixels and its picture {high}x{wide}; give them the same size"
        )
    pixels = np.atleast_3d(np.asarray(picture.resize((width, height), Image.Resampling.BILINEAR)))
    labels = np.asarray(classes.resize((width, height), Image.Resampling.NEAREST))
    return torch.from_numpy(pixels.transpose(2, 0, 1).copy()), torch.from_numpy(labels.copy())

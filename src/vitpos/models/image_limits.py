"""Limits the image size that an untrusted file states; in a model without a position table, no stored tensor bounds it."""

from __future__ import annotations

import math
from typing import Any

from vitpos.errors import InputError
from vitpos.models.base import Classifier, PatchClassifier, Shape
from vitpos.patches import to_2tuple

MAX_NUMBERS = 1 << 24  # channels × height × width of an image
MAX_PATCHES = 1 << 14  # of an image
MAX_TOKENS = 1 << 20  # patches × blocks


def check_image_size(what: str, size: Any, *, channels: Any = 3, patch: Any = None, depth: Any = 1) -> None:
    """Raises an InputError if images of a model would need more memory than those of usual Vision Transformers.

    Args:
        what: The file, for the message.
        size: Height and width of the images in pixels, one number or two.
        channels: Number of channels.
        patch: Height and width of a patch, one number or two; None for a model without patches.
        depth: Number of blocks.
    """
    sides, patches = _pair(size), (1, 1) if patch is None else _pair(patch)
    if sides is None or patches is None or type(depth) is not int or type(channels) is not int or channels < 1:
        raise InputError(f"{what} states no usable size of images, patches or model; is the file damaged?")
    count = 1 if patch is None else math.prod(side // one for side, one in zip(sides, patches, strict=True))
    if channels * math.prod(sides) > MAX_NUMBERS or count > MAX_PATCHES or count * depth > MAX_TOKENS:
        shown = "" if patch is None else f" in {count:,} patches, and {depth:,} blocks"
        raise InputError(
            f"{what} states images of {sides[0]}×{sides[1]} pixels{shown}, which is too large for an untrusted file; "
            "if you trust it, build the model yourself, load the weights and pass the model"
        )


def check_model_images(model: Classifier, shape: Shape, what: str) -> None:
    """Raises an InputError if images of ``shape``, channels, height and width, are too large for a model of vitpos.

    Args:
        model: The model, with its weights.
        shape: Channels, height and width of its images.
        what: Its file, for the message.
    """
    patched: dict[str, Any] = {}
    if isinstance(model, PatchClassifier):
        patched = {"patch": model.patch, "depth": model.geometry.depth}
    check_image_size(what, shape[1:], channels=shape[0], **patched)


def _pair(value: Any) -> tuple[int, int] | None:
    """Returns two positive sides; None for anything else."""
    values = tuple(value) if isinstance(value, list | tuple) else value
    if not all(type(side) is int and side > 0 for side in (values if isinstance(values, tuple) else (values,))):
        return None
    return to_2tuple(values) if not isinstance(values, tuple) or len(values) == 2 else None

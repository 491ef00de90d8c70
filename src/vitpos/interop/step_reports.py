"""`StepReport`: what one step of a conversion has changed, with the numbers that show it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor

from vitpos.encodings.base import PositionEncoding
from vitpos.encodings.protocols import resized
from vitpos.interop.patch_size import resize_patches
from vitpos.models.base import Classifier, PatchClassifier, Shape
from vitpos.patches import make_generator

IMAGES = 2  # random images on which outputs are compared


@dataclass(frozen=True)
class StepReport:
    """What one step of a conversion has changed.

    Args:
        step: ``mode`` (one that is compared, or the one that is used), ``patch``, ``grid``, ``encoding``, ``heal`` or
            ``format``.
        change: What has changed, as text.
        numbers: Measured values by name, such as the largest difference of outputs.
        note: What the numbers do not say; empty if nothing.
    """

    step: str
    change: str
    numbers: Mapping[str, float] = field(default_factory=dict)
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        """Returns a dictionary for JSON; numbers that are not finite become None."""
        numbers = {name: value if math.isfinite(value) else None for name, value in self.numbers.items()}
        return asdict(self) | {"numbers": numbers}


def random_images(shape: Shape, dtype: torch.dtype, images: int = IMAGES) -> Tensor:
    """Returns images of normally distributed pixels (images, channels, height, width), always the same ones."""
    return torch.randn(images, *shape, generator=make_generator(0)).to(dtype)


def largest_difference(a: Tensor, b: Tensor) -> float:
    """Returns the largest difference of two tensors, relative to the largest value of the first if that is above 1."""
    return ((a - b).abs().max() / a.abs().max().clamp_min(1)).item()


def weights_changed(before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> dict[str, float]:
    """Returns the numbers of tensors that are equal bit for bit, changed, new and removed."""
    same = sum(name in after and torch.equal(tensor, after[name]) for name, tensor in before.items())
    both = sum(name in after for name in before)
    return {
        "tensors_equal": same,
        "tensors_changed": both - same,
        "tensors_new": len(after) - both,
        "tensors_removed": len(before) - both,
    }


def position_tables(model: Classifier) -> dict[str, Tensor]:
    """Returns the stored tables of the position encodings of a model by name, each (entries, D).

    A table is a parameter whose shape depends on the grid or on the window, one entry per cell or offset.
    """
    found = {}
    for name, owner in model.named_modules():
        encoding, geometry = getattr(owner, "encoding", None), getattr(owner, "geometry", None)
        if not isinstance(encoding, PositionEncoding) or geometry is None:
            continue
        rows, columns = geometry.grid
        larger = dict(resized(encoding, (rows + 1, columns + 1)).named_parameters())
        for key, table in encoding.named_parameters():
            axes = [axis for axis, size in enumerate(table.shape) if size != larger[key].shape[axis]]
            if axes:
                entries = table.detach().movedim(axes, list(range(len(axes))))
                found[f"{name}.{key}"] = entries.reshape(math.prod(entries.shape[: len(axes)]), -1)
    return found


def norm_ratio(before: Classifier, after: Classifier) -> float:
    """Returns the mean norm of the vectors in the position tables of a model, divided by that of the model before.

    Interpolated vectors are shorter than those between which they lie. NaN if there are no tables.
    """
    old, new = ([table.double().norm(dim=-1) for table in position_tables(model).values()] for model in (before, after))
    return (torch.cat(new).mean() / torch.cat(old).mean()).item() if old and new else math.nan


def round_trip_error(before: Classifier, again: Classifier) -> float:
    """Returns the error of the position tables of a model that was converted back, a root mean square.

    It is relative to the root mean square of the tables before; NaN if there are none.
    """
    old, new = position_tables(before), position_tables(again)
    if not old:
        return math.nan
    errors = torch.stack([(table - new[name]).double().square().sum() for name, table in old.items()]).sum()
    return (errors / torch.stack([table.double().square().sum() for table in old.values()]).sum()).sqrt().item()


def difference_at_new_size(before: PatchClassifier, after: PatchClassifier, shape: Shape) -> float:
    """Returns the largest difference of the outputs of two models on random images of ``shape``.

    The model before the conversion interpolates its positions by itself, if images have another size.
    """
    images = random_images(shape, before.project.weight.dtype)
    with torch.inference_mode():
        return largest_difference(before(images), after(images))


def difference_of_tokens(before: PatchClassifier, after: PatchClassifier, mode: str) -> float:
    """Returns the largest difference of patch tokens, if the patches of random images are resized with the weights."""
    dtype = before.project.weight.dtype
    patches = random_images((before.channels, *before.patch), dtype, images=64)
    with torch.inference_mode():
        tokens = before.project(patches.flatten(1))
        return largest_difference(tokens, after.project(resize_patches(patches, after.patch, mode).flatten(1)))

"""Accuracy at another image size than that of training: at one size, and as a curve over several."""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from vitpos.data.dataset import Dataset
from vitpos.data.image_ops import resize
from vitpos.encodings._table import parse_mode
from vitpos.encodings.protocols import ntk_scaled
from vitpos.errors import InputError
from vitpos.evaluations.context import EvalContext, require_patches
from vitpos.evaluations.predict import share
from vitpos.evaluations.result import Result
from vitpos.models.base import PatchClassifier
from vitpos.patches import make_generator, patch_grid
from vitpos.positions import Positions
from vitpos.training.loop import optimizer_steps
from vitpos.training.loss import loss

Size = tuple[int, int]
Protocol = Literal["resize", "pad"]
Coordinates = Literal["fit", "beyond", "ntk"]
LARGEST = 16  # maximum ratio to the training size; the cost of attention grows with its fourth power
Show = Callable[[Tensor], Tensor]  # uint8 images → uint8 images of another height and width


def resolution(
    ctx: EvalContext,
    *,
    size: tuple[int, int] = (56, 56),
    protocol: Literal["resize", "pad"] = "resize",
    coordinates: Literal["fit", "beyond", "ntk"] | None = None,
    tables: str | None = None,
    tune: int = 0,
    rate: float = 1e-4,
    limit: int | None = None,
) -> Result:
    """Accuracy on test images of another height and width, and therefore another grid of patches.

    accuracy: fraction of the test images, 0 to 1, whose largest logit is that of their label.

    Args:
        size: Height and width of the images in pixels, multiples of the patch size.
        protocol: ``"resize"`` resizes the images bilinearly, with antialiasing when they shrink. ``"pad"`` keeps the scale:
            it centers images on a larger black canvas, or crops them to a smaller one, by whole patches; of an odd number
            the larger part is at the bottom and right. Black patches are ordinary tokens, which attention and pooling
            include, so that their effect is part of the result.
        coordinates: ``"fit"`` scales the coordinates of the new grid to the range of the training grid, the default for
            resized images. ``"beyond"`` keeps one unit per patch, so that a larger grid extends beyond the training range
            and the patches of a padded image keep their coordinates, the default for padded images. ``"ntk"`` is
            ``"beyond"`` with rotary frequencies lowered so that the lowest rotates no further than in training.
        tables: First resamples stored position tables to the new grid: ``bicubic``, ``bilinear`` or ``area``, optionally
            with ``-antialias``, ``-norm`` or both appended. By default the encoding interpolates in its own way.
        tune: Number of steps that a copy of the model is fine-tuned at the new size, with 64 training images each.
        rate: Learning rate of the fine-tuning; the position encoding uses a tenth of it.
        limit: Number of random test images; all by default.
    """
    data = ctx.data
    model = require_patches(ctx.model, "resolution")
    try:
        grid = patch_grid(size, model.patch)
    except InputError:
        high, wide = model.patch
        raise InputError(
            f"evaluation 'resolution' got size={size}, which is not made of whole patches of {high}x{wide}; "
            f"give multiples of {high} and {wide}"
        ) from None
    if any(not 1 <= new <= LARGEST * old for new, old in zip(grid, model.train_grid, strict=True)):
        raise InputError(
            f"evaluation 'resolution' got size={size} for a grid of {model.train_grid[0]}x{model.train_grid[1]} patches; "
            f"give 1 patch or more, and no more than {LARGEST} times the height and width of the training grid"
        )
    if tune < 0 or rate <= 0:
        raise InputError(f"evaluation 'resolution' got tune={tune}, rate={rate}; take steps from 0 and a rate above 0")
    sample = ctx.sample(limit)
    if tables is not None:
        parse_mode(tables)  # checks the name also for encodings without a table
        model = model.resized(grid, mode=tables)
    model, show, positions = _prepared(model, data, grid, protocol, coordinates)
    if tune:
        model = _tuned(model, data, show, positions, tune, rate)
    return Result({"accuracy": _accuracy(sample, model, show, positions)})


def resolutions(
    ctx: EvalContext,
    *,
    factors: tuple[float, ...] = (0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0),
    protocol: Literal["resize", "pad"] = "resize",
    coordinates: Literal["fit", "beyond", "ntk"] | None = None,
    limit: int | None = 2000,
) -> Result:
    """Accuracy as a function of the image size; each size is evaluated as in ``resolution``.

    accuracy by factor: fraction of the test images, 0 to 1, that are predicted correctly at each factor.
    area: area under accuracy over the logarithm of the actual factor, √(patches / patches in training), divided by the
    range of the logarithm, so that 1 means that all predictions are correct at every size. worst: lowest accuracy of all
    factors.

    Args:
        factors: Ratios to the height and width of training, rounded to whole patches (half of 7 patches is 4).
        protocol: ``"resize"`` resizes the images; ``"pad"`` pads them with black or crops them by whole patches.
        coordinates: ``"fit"`` scales coordinates to the range of training; ``"beyond"`` keeps one unit per patch; ``"ntk"``
            is ``"beyond"`` with lower rotary frequencies. ``"fit"`` by default for resized, ``"beyond"`` for padded images.
        limit: Number of random test images; None for all.
    """
    model = require_patches(ctx.model, "resolutions")
    if len(factors) < 2 or min(factors) <= 0 or max(factors) > LARGEST or len(set(factors)) < len(factors):
        raise InputError(
            f"evaluation 'resolutions' got factors={factors}; give two or more different ones above 0, up to {LARGEST}"
        )
    grids = {factor: nearest(model.train_grid, factor) for factor in sorted(factors)}
    if len(set(grids.values())) < 2:
        raise InputError(
            f"evaluation 'resolutions' got factors={factors}, which are all the same in whole patches of a grid of "
            f"{model.train_grid[0]}x{model.train_grid[1]}; give some further apart"
        )
    sample = ctx.sample(limit)
    curve = {
        factor: _accuracy(sample, *_prepared(model, ctx.data, grid, protocol, coordinates))
        for factor, grid in grids.items()
    }
    x = [math.log(rows * columns) / 2 for rows, columns in grids.values()]
    y = list(curve.values())
    area = sum((b - a) * (left + right) / 2 for a, b, left, right in zip(x, x[1:], y, y[1:], strict=False))
    return Result({"area": area / (x[-1] - x[0]), "worst": min(y)}, curves={"accuracy": curve})


def nearest(grid: Size, factor: float) -> Size:
    """Returns the rows and columns of a grid times ``factor``, rounded to whole numbers, halves up, at least 1."""
    rows, columns = (max(1, math.floor(factor * side + 0.5 + 1e-9)) for side in grid)
    return rows, columns


def _prepared(
    model: PatchClassifier, data: Dataset, grid: Size, protocol: Protocol, coordinates: Coordinates | None
) -> tuple[PatchClassifier, Show, Positions]:
    """Returns the model, a function that resizes or pads images to another grid, and the positions on that grid."""
    own, size = patch_grid(data.shape[1:], model.patch), (grid[0] * model.patch[0], grid[1] * model.patch[1])
    coordinates = coordinates or ("fit" if protocol == "resize" else "beyond")
    positions = Positions.from_grid(grid, train_grid=model.train_grid if coordinates == "fit" else None)
    if coordinates == "ntk":
        model = deepcopy(model)
        model.encoding = ntk_scaled(
            model.encoding, max(new / old for new, old in zip(grid, model.train_grid, strict=True))
        )
    if protocol == "resize":
        return model, partial(resize, size=size), positions
    top, left = (int((new - old) / 2) for new, old in zip(grid, own, strict=True))  # padded patches; negative: cropped
    if coordinates != "fit" and (top or left):
        positions = positions.shift((-top, -left))
    return model, partial(padded, size=size, corner=(top * model.patch[0], left * model.patch[1])), positions


def padded(images: Tensor, size: Size, corner: Size) -> Tensor:
    """Pads images (B, C, height, width) with black to ``size`` (height, width), or crops them.

    Their top left pixel moves to row and column ``corner``; pixels outside the new size are dropped.
    """
    (height, width), (top, left) = images.shape[2:], corner
    return F.pad(images, (left, size[1] - width - left, top, size[0] - height - top))


def _accuracy(ctx: EvalContext, model: PatchClassifier, show: Show, positions: Positions) -> float:
    logits = replace(ctx, model=model).predict(lambda images, start: (show(images), positions))
    return share(logits.argmax(1) == ctx.data.test.labels)


def _tuned(
    model: PatchClassifier, data: Dataset, show: Show, positions: Positions, steps: int, rate: float
) -> PatchClassifier:
    """Returns a copy of the model that is fine-tuned at the new size, the encoding at a tenth of the learning rate."""
    model = deepcopy(model).train()
    device = model.device
    encoding = set(model.encoding.parameters())
    others = [parameter for parameter in model.parameters() if parameter not in encoding]
    groups: list[dict[str, Any]] = [{"params": others}, {"params": list(encoding), "lr": rate / 10}]
    optimizer = torch.optim.AdamW([group for group in groups if group["params"]], lr=rate)
    index = torch.randint(len(data.train), (steps, 64), generator=make_generator(0))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for images, labels in optimizer_steps(optimizer, data.train.batches(list(index))):
            inputs = data.normalize(show(images.to(device)))
            loss(model, inputs, labels.to(device), positions.to(device))[0].backward()
    return model.eval()

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
from vitpos.encodings._table_interpolation import parse_mode
from vitpos.encodings.protocols import ntk_scaled
from vitpos.errors import InputError
from vitpos.evaluations.context import NO_PATCHES, EvalContext
from vitpos.evaluations.predict import fraction_true
from vitpos.evaluations.result import Result
from vitpos.models.base import PatchClassifier
from vitpos.patches import make_generator, patch_grid
from vitpos.positions import Positions
from vitpos.training.loop import optimizer_steps
from vitpos.training.loss import loss

Size = tuple[int, int]
ResizeMode = Literal["resize", "pad"]
Coords = Literal["interpolate", "extrapolate", "ntk"]
MAX_SCALE = 16  # maximum ratio to the training size; the cost of attention grows with its fourth power
ResizeFn = Callable[[Tensor], Tensor]  # uint8 images → uint8 images of another height and width


def resolution(
    ctx: EvalContext,
    *,
    size: tuple[int, int] = (56, 56),
    resize_mode: ResizeMode = "resize",
    coords: Coords | None = None,
    resize_tables: str | None = None,
    finetune_steps: int = 0,
    finetune_lr: float = 1e-4,
    max_images: int | None = None,
) -> Result:
    """Accuracy on test images of another height and width, and therefore another grid of patches.

    accuracy: fraction of the test images, 0 to 1, whose largest logit is that of their label.

    Args:
        size: Height and width of the images in pixels, multiples of the patch size.
        resize_mode: ``"resize"`` resizes the images bilinearly, with antialiasing when they shrink. ``"pad"`` keeps the
            scale: it centers images on a larger black canvas, or crops them to a smaller one, by whole patches; if
            their number is odd, one more is at the bottom or right. Black patches are ordinary tokens, which attention and
            pooling include, so that their effect is part of the result.
        coords: ``"interpolate"`` scales the coordinates of the new grid to the range of the training grid, the default for
            resized images. ``"extrapolate"`` keeps one unit per patch, so that a larger grid extends beyond the training
            range and the patches of a padded image keep their coordinates, the default for padded images. ``"ntk"`` is
            ``"extrapolate"`` with rotary frequencies lowered so that the lowest rotates no further than in training.
        resize_tables: First resamples stored position tables to the new grid: ``bicubic``, ``bilinear`` or ``area``,
            optionally followed by ``-antialias`` or ``-align_corners`` (corner cells keep their values) and by ``-norm``
            (keeps the norms of the vectors), as in ``bicubic-antialias-norm``. By default the encoding interpolates in
            its own way.
        finetune_steps: Number of steps of 64 training images that a copy of the model is fine-tuned at the new size.
        finetune_lr: Learning rate of the fine-tuning; the position encoding uses a tenth of it.
        max_images: Number of random test images; all by default.
    """
    model, data = ctx.model, ctx.data
    if not isinstance(model, PatchClassifier):
        return Result(reason=NO_PATCHES)
    try:
        grid = patch_grid(size, model.patch)
    except InputError:
        high, wide = model.patch
        raise InputError(
            f"evaluation 'resolution' got size={size}, which is not made of whole patches of {high}x{wide}; "
            f"give multiples of {high} and {wide}"
        ) from None
    if any(not 1 <= new <= MAX_SCALE * old for new, old in zip(grid, model.train_grid, strict=True)):
        raise InputError(
            f"evaluation 'resolution' got size={size} for a grid of {model.train_grid[0]}x{model.train_grid[1]} patches; "
            f"give 1 patch or more, and no more than {MAX_SCALE} times the height and width of the training grid"
        )
    if finetune_steps < 0 or finetune_lr <= 0:
        raise InputError(
            f"evaluation 'resolution' got finetune_steps={finetune_steps}, finetune_lr={finetune_lr}; "
            "take steps from 0 and a learning rate above 0"
        )
    sample = ctx.sample(max_images)
    if resize_tables is not None:
        parse_mode(resize_tables)  # checks the name also for encodings without a table
        model = model.resized(grid, mode=resize_tables)
    model, resize_images, positions = _at_grid(model, data, grid, resize_mode, coords)
    if finetune_steps:
        model = _finetune(model, data, resize_images, positions, finetune_steps, finetune_lr)
    logits = replace(sample, model=model).predict_logits(lambda images, start: (resize_images(images), positions))
    return Result({"accuracy": fraction_true(logits.argmax(1) == sample.data.test.labels)})


def resolution_curve(
    ctx: EvalContext,
    *,
    factors: tuple[float, ...] = (0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0),
    resize_mode: ResizeMode = "resize",
    coords: Coords | None = None,
    resize_tables: str | None = None,
    max_images: int | None = 2000,
) -> Result:
    """Accuracy as a function of the image size; each size is evaluated as in ``resolution``.

    accuracy by factor: fraction of the test images, 0 to 1, that are predicted correctly at each factor.
    auc: area under accuracy over the logarithm of the actual factor, √(patches / patches in training), divided by the
    range of the logarithm, so that 1 means that all predictions are correct at every size. min_accuracy: lowest
    accuracy of all factors.

    Args:
        factors: Ratios to the height and width of training, rounded to whole patches (half of 7 patches is 4).
        resize_mode: ``"resize"`` resizes the images; ``"pad"`` pads them with black or crops them by whole patches.
        coords: ``"interpolate"`` scales coordinates to the range of training, the default for resized images;
            ``"extrapolate"`` keeps one unit per patch, the default for padded images; ``"ntk"`` is ``"extrapolate"`` with
            lower rotary frequencies.
        resize_tables: First resamples stored position tables to each grid, as in ``resolution``: ``bicubic``,
            ``bilinear-align_corners``, ``area-norm`` and so on.
        max_images: Number of random test images; None for all.
    """
    model = ctx.model
    if not isinstance(model, PatchClassifier):
        return Result(reason=NO_PATCHES)
    if len(factors) < 2 or min(factors) <= 0 or max(factors) > MAX_SCALE or len(set(factors)) < len(factors):
        raise InputError(
            f"evaluation 'resolution_curve' got factors={factors}; "
            f"give two or more different ones above 0, up to {MAX_SCALE}"
        )
    grids = {factor: scaled_grid(model.train_grid, factor) for factor in sorted(factors)}
    if len(set(grids.values())) < 2:
        raise InputError(
            f"evaluation 'resolution_curve' got factors={factors}, which are all the same in whole patches of a grid of "
            f"{model.train_grid[0]}x{model.train_grid[1]}; give some further apart"
        )
    (height, width), sample = model.patch, ctx.sample(max_images)
    curve = {}
    for factor, (rows, columns) in grids.items():
        result = resolution(
            sample,
            size=(rows * height, columns * width),
            resize_mode=resize_mode,
            coords=coords,
            resize_tables=resize_tables,
        )
        curve[factor] = result.numbers["accuracy"]
    x = [math.log(rows * columns) / 2 for rows, columns in grids.values()]
    y = list(curve.values())
    area = sum((b - a) * (left + right) / 2 for a, b, left, right in zip(x, x[1:], y, y[1:], strict=False))
    return Result({"auc": area / (x[-1] - x[0]), "min_accuracy": min(y)}, curves={"accuracy": curve})


def scaled_grid(grid: Size, factor: float) -> Size:
    """Returns (rows, columns) of a grid times ``factor``, rounded to integers of at least 1; halves are rounded up."""
    rows, columns = (max(1, math.floor(factor * side + 0.5 + 1e-9)) for side in grid)
    return rows, columns


def _at_grid(
    model: PatchClassifier, data: Dataset, grid: Size, resize_mode: ResizeMode, coords: Coords | None
) -> tuple[PatchClassifier, ResizeFn, Positions]:
    """Returns (model, function, positions) for an evaluation of a model on another ``grid`` (rows, columns of patches).

    The model is a copy with lower rotary frequencies for ``coords="ntk"``, otherwise the same. The function resizes or
    pads uint8 images (B, C, height, width) to the size of the grid. The positions are those of the patches of the grid.

    Args:
        resize_mode: ``"resize"`` resizes images; ``"pad"`` pads them with black or crops them by whole patches.
        coords: ``"interpolate"`` scales coordinates to the range of the training grid, ``"extrapolate"`` and ``"ntk"``
            keep one unit per patch. None is ``"interpolate"`` for resized and ``"extrapolate"`` for padded images.
    """
    own, size = patch_grid(data.shape[1:], model.patch), (grid[0] * model.patch[0], grid[1] * model.patch[1])
    coords = coords or ("interpolate" if resize_mode == "resize" else "extrapolate")
    positions = Positions.from_grid(grid, train_grid=model.train_grid if coords == "interpolate" else None)
    if coords == "ntk":
        model, scale = deepcopy(model), max(new / old for new, old in zip(grid, model.train_grid, strict=True))
        model.encoding = ntk_scaled(model.encoding, scale)
    if resize_mode == "resize":
        return model, partial(resize, size=size), positions
    top, left = (int((new - old) / 2) for new, old in zip(grid, own, strict=True))  # padded patches; negative: cropped
    if coords != "interpolate" and (top or left):
        positions = positions.shift((-top, -left))
    return model, partial(pad_or_crop, size=size, corner=(top * model.patch[0], left * model.patch[1])), positions


def pad_or_crop(images: Tensor, size: Size, corner: Size) -> Tensor:
    """Returns images (B, C, height, width) padded with black, or cropped, to the height and width ``size``.

    The top left pixel of an image moves to row and column ``corner``, which may be negative; pixels outside are
    dropped.
    """
    (height, width), (top, left) = images.shape[2:], corner
    return F.pad(images, (left, size[1] - width - left, top, size[0] - height - top))


def _finetune(
    model: PatchClassifier, data: Dataset, resize_images: ResizeFn, positions: Positions, steps: int, lr: float
) -> PatchClassifier:
    """Returns a copy of the model, fine-tuned with AdamW at another image size for ``steps`` batches of 64 training images.

    Args:
        resize_images: Changes uint8 images (B, C, height, width) to the new height and width.
        positions: Positions of the patches at the new size.
        lr: Learning rate; the position encoding uses a tenth of it.
    """
    model = deepcopy(model).train()
    device = model.device
    encoding = set(model.encoding.parameters())
    others = [parameter for parameter in model.parameters() if parameter not in encoding]
    groups: list[dict[str, Any]] = [{"params": others}, {"params": list(encoding), "lr": lr / 10}]
    optimizer = torch.optim.AdamW([group for group in groups if group["params"]], lr=lr)
    index = torch.randint(len(data.train), (steps, 64), generator=make_generator(0))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for images, labels in optimizer_steps(optimizer, data.train.batches(list(index))):
            inputs = data.normalize(resize_images(images.to(device)))
            loss(model, inputs, labels.to(device), positions.to(device))[0].backward()
    return model.eval()

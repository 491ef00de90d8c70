"""Pictures of another size than the model was trained on: one size, and a curve over many."""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from vitpos.data.dataset import Dataset
from vitpos.data.image_ops import resize
from vitpos.encodings.tables import parse_how
from vitpos.errors import UserError
from vitpos.evaluations.predict import predict, share
from vitpos.models.base import Classifier, PatchClassifier
from vitpos.patches import make_generator, patch_grid
from vitpos.positions import Positions

Size = tuple[int, int]
Protocol = Literal["resize", "pad"]
Coordinates = Literal["fit", "beyond", "ntk"]
LARGEST = 16  # times the height and width that was trained with: attention's work grows by its fourth power
Show = Callable[[Tensor], Tensor]  # bytes as they are → bytes of another height and width


def resolution(
    model: Classifier,
    data: Dataset,
    *,
    size: tuple[int, int] = (56, 56),
    protocol: Literal["resize", "pad"] = "resize",
    coordinates: Literal["fit", "beyond", "ntk"] | None = None,
    tables: str | None = None,
    tune: int = 0,
    rate: float = 1e-4,
    limit: int | None = None,
) -> dict[str, float]:
    """Right answers on test images of another height and width, so that the grid of patches changes.

    accuracy: share of the test images (or of ``limit`` of them, drawn once), 0 to 1, whose largest logit is their label's.
    ``protocol="resize"``: pictures are resized bilinearly (antialiased when shrunk), so that what they show changes its
    size in patches; ``"pad"``: it keeps its size, in the middle of a larger black picture or of a smaller crop. Borders
    are whole patches, of an odd number the larger half below and on the right. Their blank tokens are attended to and
    averaged over like all others: what they do to a model remains part of the number.
    ``coordinates="fit"``: the new grid is laid over the span of the training grid (resized pictures, if nothing else is
    said); ``"beyond"``: places keep whole coordinates, and those of a padded picture's own patches are the trained ones, so
    that a larger grid goes beyond them (padded pictures, if nothing else is said); ``"ntk"``: the same, with rotations
    slowed down so that their slowest turns no further than in training. ``tables``: stored tables are first resampled for
    good to the new grid, by ``bicubic``, ``bilinear`` or ``area``, with ``-antialias`` or ``-norm`` or both. ``tune``: a
    copy of the model is first trained at the new size for so many steps of 64 training images, at ``rate``, positions at
    a tenth of it.
    """
    model = _with_patches("resolution", model)
    try:
        grid = patch_grid(size, model.patch)
    except UserError:
        high, wide = model.patch
        raise UserError(
            f"evaluation 'resolution' got size={size}, which is not made of whole patches of {high}x{wide}; "
            f"give multiples of {high} and {wide}"
        ) from None
    if any(not 1 <= new <= LARGEST * old for new, old in zip(grid, model.span, strict=True)):
        raise UserError(
            f"evaluation 'resolution' got size={size} for a grid of {model.span[0]}x{model.span[1]} patches; "
            f"give 1 patch or more, and no more than {LARGEST} times the height and width that was trained with"
        )
    if tune < 0 or rate <= 0:
        raise UserError(f"evaluation 'resolution' got tune={tune}, rate={rate}; take steps from 0 and a rate above 0")
    few = data.sample_test(limit)
    if tables is not None:
        parse_how(tables)  # also where there is no table that would be resampled by it
        model = model.resized(grid, how=tables)
    model, show, positions = _prepared(model, data, grid, protocol, coordinates)
    if tune:
        model = _tuned(model, data, show, positions, tune, rate)
    return {"accuracy": _accuracy(few, model, show, positions)}


def resolutions(
    model: Classifier,
    data: Dataset,
    *,
    factors: tuple[float, ...] = (0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0),
    protocol: Literal["resize", "pad"] = "resize",
    coordinates: Literal["fit", "beyond", "ntk"] | None = None,
    limit: int | None = 2000,
) -> dict[str, float]:
    """Right answers by the size of the picture, as ``resolution`` gives them one by one.

    accuracy_0.5, …: share of ``limit`` test images, drawn once, 0 to 1, answered rightly at so many times the height and
    width that was trained with, to the nearest whole patches (halves up: half of 7 are 4). area: the area under accuracy
    over the logarithm of what the factor then really is (the root of the ratio of the numbers of patches), divided by its
    range, so that 1 means right at every size. worst: the lowest of them.
    """
    model = _with_patches("resolutions", model)
    if len(factors) < 2 or min(factors) <= 0 or max(factors) > LARGEST or len(set(factors)) < len(factors):
        raise UserError(
            f"evaluation 'resolutions' got factors={factors}; give two or more different ones above 0, up to {LARGEST}"
        )
    grids = {factor: nearest(model.span, factor) for factor in sorted(factors)}
    if len(set(grids.values())) < 2:
        raise UserError(
            f"evaluation 'resolutions' got factors={factors}, which are all the same in whole patches of a grid of "
            f"{model.span[0]}x{model.span[1]}; give some further apart"
        )
    few = data.sample_test(limit)
    found = {
        factor: _accuracy(few, *_prepared(model, data, grid, protocol, coordinates)) for factor, grid in grids.items()
    }
    at = [math.log(rows * columns) / 2 for rows, columns in grids.values()]
    heights = list(found.values())
    area = sum((b - a) * (y + z) / 2 for a, b, y, z in zip(at, at[1:], heights, heights[1:], strict=False))
    by_factor = {f"accuracy_{factor:g}": accuracy for factor, accuracy in found.items()}
    return by_factor | {"area": area / (at[-1] - at[0]), "worst": min(heights)}


def nearest(grid: Size, factor: float) -> Size:
    """The whole rows and columns nearest to so many times those of a grid; halves go up, and 1 is the least."""
    rows, columns = (max(1, math.floor(factor * side + 0.5 + 1e-9)) for side in grid)
    return rows, columns


def _with_patches(name: str, model: Classifier) -> PatchClassifier:
    if not isinstance(model, PatchClassifier):
        raise UserError(f"evaluation {name!r} is for models with patches; leave it out for this one")
    return model


def _prepared(
    model: PatchClassifier, data: Dataset, grid: Size, protocol: Protocol, coordinates: Coordinates | None
) -> tuple[PatchClassifier, Show, Positions]:
    """The model, what brings pictures to another grid, and the places that the model is told there."""
    own, size = patch_grid(data.shape[1:], model.patch), (grid[0] * model.patch[0], grid[1] * model.patch[1])
    coordinates = coordinates or ("fit" if protocol == "resize" else "beyond")
    positions = Positions.of(grid, fit=model.span if coordinates == "fit" else None)
    if coordinates == "ntk":
        model = deepcopy(model)
        model.encoding = model.encoding.slowed(max(new / old for new, old in zip(grid, model.span, strict=True)))
    if protocol == "resize":
        return model, partial(resize, size=size), positions
    top, left = (int((new - old) / 2) for new, old in zip(grid, own, strict=True))  # patches before; below 0: cut off
    if coordinates != "fit" and (top or left):
        positions = positions.moved((-top, -left))
    return model, partial(padded, size=size, corner=(top * model.patch[0], left * model.patch[1])), positions


def padded(images: Tensor, size: Size, corner: Size) -> Tensor:
    """Pictures in a black one of another ``size``, from its row and column ``corner`` on; what is outside is cut off."""
    (height, width), (top, left) = images.shape[2:], corner
    return F.pad(images, (left, size[1] - width - left, top, size[0] - height - top))


def _accuracy(data: Dataset, model: PatchClassifier, show: Show, positions: Positions) -> float:
    logits = predict(model, data, lambda images, start: (show(images), positions))
    return share(logits.argmax(1) == data.test.labels)


def _tuned(
    model: PatchClassifier, data: Dataset, show: Show, positions: Positions, steps: int, rate: float
) -> PatchClassifier:
    """A copy of the model, trained at the new size for a while; its encoding learns ten times more slowly."""
    model = deepcopy(model).train()
    device = model.project.weight.device
    places = set(model.encoding.parameters())
    others = [parameter for parameter in model.parameters() if parameter not in places]
    groups: list[dict[str, Any]] = [{"params": others}, {"params": list(places), "lr": rate / 10}]
    optimizer = torch.optim.AdamW([group for group in groups if group["params"]], lr=rate)
    index = torch.randint(len(data.train), (steps, 64), generator=make_generator(0))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for images, labels in data.train.batches(list(index)):
            inputs = data.normalize(show(images.to(device)))
            logits, penalty = model.step(inputs, positions.to(device))
            optimizer.zero_grad()
            (F.cross_entropy(logits, labels.to(device)) + penalty).backward()
            optimizer.step()
    return model.eval()

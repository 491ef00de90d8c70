"""Pictures that are moved: by one step, and by random ones."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from vitpos.data.dataset import Dataset
from vitpos.errors import UserError
from vitpos.evaluations.context import EvalContext
from vitpos.evaluations.predict import share
from vitpos.evaluations.result import Result
from vitpos.models.activations import layer_tokens_and_logits, relative_error
from vitpos.models.base import PatchClassifier
from vitpos.patches import make_generator
from vitpos.shifts import overlapping_cells, shift_each, shift_pair


def translation(
    ctx: EvalContext,
    *,
    by: tuple[int, int] = (0, 1),
    unit: Literal["patches", "pixels"] = "patches",
    border: Literal["zeros", "wrap", "crop"] = "zeros",
    limit: int | None = 200,
) -> Result:
    """What a model makes of test images moved down and right by so many patches or pixels.

    accuracy: share of the moved test images, 0 to 1, whose largest logit is their label's.
    agreement: share answered as before the move; agreement_and_right: answered so, and rightly.
    tokens: how far the tokens after the last layer are from those before the move, where both show the same patch: the
    length of the difference over that of the tokens before (mean over ``limit`` test images, drawn once). tokens by layer:
    the same after each layer, from 1. logits: the same of the first attention's logits among such patches; 0 for an
    encoding that knows only how patches lie to each other. A pair of patches that a head sees (a logit above −∞) only
    before or only after the move counts as different by the logits' root mean square, one it never sees as alike. These
    numbers only for whole patches, in models whose tokens stay on one grid.
    ``border="zeros"``: what leaves is lost, what comes in is black; ``"wrap"``: it comes in on the other side, which only
    a model without positions takes for the same; ``"crop"``: two crops of the enlarged picture, the fair test
    for relative encodings, whose ``agreement`` is between the two. ``by``: rows and columns, negative for up and left.
    """
    model, data = ctx.model, ctx.data
    if unit == "patches" and not isinstance(model, PatchClassifier):
        raise UserError("evaluation 'translation' needs unit='pixels' for a model without patches")
    patch = model.patch if isinstance(model, PatchClassifier) and unit == "patches" else (1, 1)
    pixels = by[0] * patch[0], by[1] * patch[1]
    height, width = data.shape[1:]
    if abs(pixels[0]) >= height or abs(pixels[1]) >= width:
        raise UserError(
            f"evaluation 'translation' got by={by} {unit}, which leaves nothing of {height}x{width} pixels; move less"
        )
    few = ctx.sample(limit).data
    after = ctx.predict(lambda images, start: (shift_pair(images, pixels, border)[1], None)).argmax(1)
    same_place = (lambda images, start: (shift_pair(images, pixels, border)[0], None)) if border == "crop" else None
    before = ctx.predict(same_place).argmax(1)
    right, same = after == data.test.labels, after == before
    found = {"accuracy": share(right), "agreement": share(same), "agreement_and_right": share(right & same)}
    if not isinstance(model, PatchClassifier) or unit == "pixels":
        return Result(found)
    tokens, logits = _errors(model, few, by, pixels, border)
    if not tokens:
        return Result(found)
    by_layer = {float(layer): error for layer, error in enumerate(tokens, 1)}
    return Result(found | {"tokens": tokens[-1], "logits": logits}, curves={"tokens": by_layer})


def _errors(
    model: PatchClassifier,
    data: Dataset,
    by: tuple[int, int],
    pixels: tuple[int, int],
    border: Literal["zeros", "wrap", "crop"],
) -> tuple[list[float], float]:
    """How far the tokens after each layer, and the first logits, are from those before the move; no layer: empty."""
    device = model.device
    errors: list[Tensor] = []
    for start in range(0, len(data.test), 100):
        images = data.test.images[start : start + 100].to(device)
        pair = [data.normalize(part) for part in shift_pair(images, pixels, border)]
        with torch.inference_mode():
            (tokens, logits), (tokens_moved, logits_moved) = (layer_tokens_and_logits(model, part) for part in pair)
        if not tokens:
            return [], math.nan
        at, to = (x.to(device) for x in overlapping_cells(model.positions(pair[0]).grid, by, border))
        each = [relative_error(b[:, to], a[:, at]) for a, b in zip(tokens, tokens_moved, strict=True)]
        first = relative_error(logits_moved[0][:, :, to][..., to], logits[0][:, :, at][..., at])
        errors.append(torch.stack([*each, first]))
    means: list[float] = torch.cat(errors, 1).mean(1).tolist()
    return means[:-1], means[-1]


def translations(
    ctx: EvalContext,
    *,
    steps: tuple[int, ...] = (1, 2, 3, 4, 6, 8),
    border: Literal["zeros", "wrap", "crop"] = "zeros",
    limit: int | None = 2000,
) -> Result:
    """What a model makes of test images moved by more and more pixels, as ``translation`` gives it one by one.

    accuracy by step: share of ``limit`` test images, drawn once, 0 to 1, answered rightly after a move to the right by each
    of ``steps`` pixels. agreement by step: share answered as before the move.
    """
    if not steps or min(steps) < 1 or len(set(steps)) < len(steps):
        raise UserError(f"evaluation 'translations' got steps={steps}; give different ones, of 1 pixel or more")
    few = ctx.sample(limit)
    each = {float(step): translation(few, by=(0, step), unit="pixels", border=border).numbers for step in sorted(steps)}
    return Result(
        curves={metric: {step: one[metric] for step, one in each.items()} for metric in ("accuracy", "agreement")}
    )


def shifts(
    ctx: EvalContext,
    *,
    most: int = 4,
    border: Literal["zeros", "wrap"] = "wrap",
    draws: int = 5,
    seed: int = 0,
) -> Result:
    """Whether a model answers alike wherever a picture lies (Zhang, ICML 2019).

    consistency: share of the test images, 0 to 1, answered alike after two random moves (mean over ``draws`` such pairs).
    accuracy: share answered rightly, mean over the moves. worst: share answered rightly after every one of them.
    Each image moves by −``most`` to ``most`` pixels of its own in each direction, the same for all models; what leaves
    comes in on the other side (``border="wrap"``) or is lost (``"zeros"``).
    """
    data = ctx.data
    if most < 1 or draws < 1 or most >= min(data.shape[1:]):
        raise UserError(
            f"evaluation 'shifts' got most={most}, draws={draws}; take 1 or more, and less than the picture's side"
        )
    steps = torch.randint(-most, most + 1, (2 * draws, len(data.test), 2), generator=make_generator(seed))

    def answers(step: Tensor) -> Tensor:
        def change(images: Tensor, start: int) -> tuple[Tensor, None]:
            return shift_each(images, step[start : start + len(images)].to(images.device), border), None

        return ctx.predict(change).argmax(1)

    found = torch.stack([answers(step) for step in steps])  # (2 · draws, n)
    right = found == data.test.labels
    return Result(
        {
            "consistency": share(found[::2] == found[1::2]),
            "accuracy": share(right),
            "worst": share(right.all(0)),
        }
    )

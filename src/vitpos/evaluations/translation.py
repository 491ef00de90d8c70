"""Predictions and tokens on shifted test images: by one step, by several steps, and by random steps."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from vitpos.data.dataset import Dataset
from vitpos.errors import InputError
from vitpos.evaluations.context import EvalContext
from vitpos.evaluations.predict import consistency, fraction_true
from vitpos.evaluations.result import Result
from vitpos.models.activations import layer_tokens_and_logits, relative_error
from vitpos.models.base import PatchClassifier
from vitpos.patches import make_generator
from vitpos.shifts import Border, overlapping_cells, shift_each, shift_pair


def translation(
    ctx: EvalContext,
    *,
    by: tuple[int, int] = (0, 1),
    unit: Literal["patches", "pixels"] = "patches",
    border: Border = "zeros",
    max_token_images: int | None = 200,
) -> Result:
    """Accuracy on shifted test images, and change of predictions, tokens and attention logits under the shift.

    accuracy: fraction of the shifted test images, 0 to 1, whose largest logit is that of their label.
    consistency: fraction of the test images that are predicted as the same class before and after the shift.
    consistent_correct: fraction predicted as the same class, which is that of the label. token_error: relative error
    ‖after − before‖ / ‖before‖ of the tokens after the last layer, over the patches that are visible before and after the
    shift. token_error by layer: the same after each layer, from 1. logit_error: relative error of the first attention's
    logits between such patches; it is 0 for relative encodings. prefix_logit_error: the same between such patches and the
    prefix tokens (CLS and registers), in models that have some. A pair of patches that is masked (−∞) only before or only
    after the shift counts as different by the root mean square of the logits, a pair that is masked in both as equal.
    Tokens and logits are compared only for shifts by whole patches, in models whose tokens stay on one grid.

    Args:
        by: Shift down and right; negative numbers shift up and left.
        unit: Whether ``by`` is in ``"patches"`` or ``"pixels"``.
        border: ``"zeros"`` fills the border with black. ``"wrap"`` fills it with the pixels that leave on the other side,
            a shift to which only models without positions are invariant. ``"crop"`` compares two crops of the upscaled
            image, so that no pixel is filled in: a fair test of relative encodings.
        max_token_images: Number of random test images for the comparison of tokens and logits; None for all. Predictions
            are compared on all test images.
    """
    model, data = ctx.model, ctx.data
    if unit == "patches" and not isinstance(model, PatchClassifier):
        raise InputError("evaluation 'translation' needs unit='pixels' for a model without patches")
    patch = model.patch if isinstance(model, PatchClassifier) and unit == "patches" else (1, 1)
    pixels = by[0] * patch[0], by[1] * patch[1]
    height, width = data.shape[1:]
    if abs(pixels[0]) >= height or abs(pixels[1]) >= width:
        raise InputError(
            f"evaluation 'translation' got by={by} {unit}, which leaves nothing of {height}x{width} pixels; shift by less"
        )
    sample = ctx.sample(max_token_images).data
    after = ctx.predict_logits(lambda images, start: (shift_pair(images, pixels, border)[1], None))
    first_crop = (lambda images, start: (shift_pair(images, pixels, border)[0], None)) if border == "crop" else None
    numbers = consistency(after, ctx.predict_logits(first_crop), data.test.labels)
    if not isinstance(model, PatchClassifier) or unit == "pixels":
        return Result(numbers)
    token_errors, logit_errors = _relative_errors(model, sample, by, pixels, border)
    if not token_errors:
        return Result(numbers)
    numbers |= {"token_error": token_errors[-1], **logit_errors}
    return Result(numbers, curves={"token_error": {float(i): error for i, error in enumerate(token_errors, 1)}})


def _relative_errors(
    model: PatchClassifier,
    data: Dataset,
    by: tuple[int, int],
    pixels: tuple[int, int],
    border: Border,
) -> tuple[list[float], dict[str, float]]:
    """Compares tokens and attention logits of test images before and after a shift.

    Returns a list with the relative error of the patch tokens after each layer, and a dictionary with that of the logits
    of the first attention: ``logit_error`` between patches and, if the model has prefix tokens, ``prefix_logit_error``
    between these and patches. All are means over the images. Only patches that are visible before and after the shift
    are compared. For models whose tokens do not stay on one grid, such as Swin, both are empty.

    Args:
        by: Shift down and right in patches.
        pixels: The same shift in pixels.
        border: How pixels at the border are filled: ``"zeros"``, ``"wrap"`` or ``"crop"``, as in `translation`.
    """
    device, prefix = model.device, model.geometry.num_prefix
    errors: list[Tensor] = []
    for start in range(0, len(data.test), 100):
        images = data.test.images[start : start + 100].to(device)
        pair = [data.normalize(part) for part in shift_pair(images, pixels, border)]
        with torch.inference_mode():
            (tokens, logits), (shifted_tokens, shifted_logits) = (layer_tokens_and_logits(model, part) for part in pair)
        if not tokens:
            return [], {}
        before, after = (x.to(device) for x in overlapping_cells(model.positions(pair[0]).grid, by, border))
        each = [relative_error(y[:, after], x[:, before]) for x, y in zip(tokens, shifted_tokens, strict=True)]
        cells = [(shifted_logits[0], after + prefix), (logits[0], before + prefix)]
        each.append(relative_error(*(x[:, :, cell][..., cell] for x, cell in cells)))
        if prefix:
            each.append(relative_error(*(_with_prefix(x, cell, prefix) for x, cell in cells)))
        errors.append(torch.stack(each))
    means: list[float] = torch.cat(errors, 1).mean(1).tolist()
    names = ["logit_error", "prefix_logit_error"][: 1 + bool(prefix)]
    return means[: -len(names)], dict(zip(names, means[-len(names) :], strict=True))


def _with_prefix(logits: Tensor, cells: Tensor, prefix: int) -> Tensor:
    """Returns the logits (B, H, 2, P, M) from P prefix tokens to M patches and back, of logits (B, H, T, T).

    ``cells`` (M,) are the indices of the patches among all tokens, of which the first P = ``prefix`` are prefix tokens.
    """
    return torch.stack([logits[:, :, :prefix, cells], logits[:, :, cells, :prefix].mT], 2)


def translation_curve(
    ctx: EvalContext,
    *,
    steps: tuple[int, ...] = (1, 2, 3, 4, 6, 8),
    border: Border = "zeros",
    max_images: int | None = 2000,
) -> Result:
    """Accuracy as a function of the shift in pixels; each shift is evaluated as in ``translation``.

    accuracy by step: fraction of the test images, 0 to 1, that are predicted correctly after a shift to the right by each
    number of pixels. consistency by step: fraction that is predicted as the same class before and after the shift.

    Args:
        steps: Shifts to the right in pixels.
        border: ``"zeros"`` fills the border with black, ``"wrap"`` with the pixels that leave on the other side; ``"crop"``
            compares two crops of the upscaled image.
        max_images: Number of random test images; None for all.
    """
    if not steps or min(steps) < 1 or len(set(steps)) < len(steps):
        raise InputError(f"evaluation 'translation_curve' got steps={steps}; give different ones, of 1 pixel or more")
    sample = ctx.sample(max_images)
    each = {
        float(step): translation(sample, by=(0, step), unit="pixels", border=border).numbers for step in sorted(steps)
    }
    return Result(
        curves={metric: {step: one[metric] for step, one in each.items()} for metric in ("accuracy", "consistency")}
    )


def random_shifts(
    ctx: EvalContext,
    *,
    max_shift: int = 4,
    border: Literal["zeros", "wrap"] = "wrap",
    num_pairs: int = 5,
    seed: int = 0,
) -> Result:
    """Consistency of predictions under random shifts (Zhang, ICML 2019).

    consistency: fraction of the test images, 0 to 1, that are predicted as the same class after two random shifts, mean
    over ``num_pairs`` pairs of shifts.
    accuracy: fraction of the test images that are predicted correctly, mean over all shifts.
    worst_case_accuracy: fraction of the test images that are predicted correctly after every shift.

    Args:
        max_shift: Maximum shift in pixels. Each image is shifted by its own random numbers of rows and columns, from
            −``max_shift`` to ``max_shift``, which are the same for all models.
        border: ``"wrap"`` fills the border with the pixels that leave on the other side, ``"zeros"`` with black.
        num_pairs: Number of pairs of random shifts.
        seed: Seed of the shifts.
    """
    data = ctx.data
    if max_shift < 1 or num_pairs < 1 or max_shift >= min(data.shape[1:]):
        raise InputError(
            f"evaluation 'random_shifts' got max_shift={max_shift}, num_pairs={num_pairs}; "
            "take 1 or more, and a shift below the height and width of the image"
        )
    steps = torch.randint(-max_shift, max_shift + 1, (2 * num_pairs, len(data.test), 2), generator=make_generator(seed))

    def predict(step: Tensor) -> Tensor:
        def shift(images: Tensor, start: int) -> tuple[Tensor, None]:
            return shift_each(images, step[start : start + len(images)].to(images.device), border), None

        return ctx.predict_logits(shift).argmax(1)

    predicted = torch.stack([predict(step) for step in steps])  # (2 · num_pairs, n)
    correct = predicted == data.test.labels
    return Result(
        {
            "consistency": fraction_true(predicted[::2] == predicted[1::2]),
            "accuracy": fraction_true(correct),
            "worst_case_accuracy": fraction_true(correct.all(0)),
        }
    )

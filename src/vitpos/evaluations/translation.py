"""Pictures that are moved: by one step, and by random ones."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from vitpos.data.base import Dataset
from vitpos.errors import UserError
from vitpos.evaluations.predict import predict, share
from vitpos.models.activations import layer_tokens_and_logits, relative_error
from vitpos.models.base import Classifier, PatchClassifier
from vitpos.moves import moved, scattered, shared
from vitpos.patches import generator_of


def translation(
    model: Classifier,
    data: Dataset,
    *,
    by: tuple[int, int] = (0, 1),
    unit: Literal["patches", "pixels"] = "patches",
    edge: Literal["black", "wrap", "crop"] = "black",
    limit: int | None = 200,
) -> dict[str, float]:
    """What a model makes of test images moved down and right by so many patches or pixels.

    accuracy: share of the moved test images, 0 to 1, whose largest logit is their label's.
    agreement: share answered as before the move; agreement_and_right: answered so, and rightly.
    tokens, tokens_1, tokens_2, …: how far the tokens after the last and after each layer are from those before the move,
    where both show the same patch: the length of the difference over that of the tokens before (mean over ``limit`` test
    images, drawn once). logits: the same of the first attention's logits among such patches; 0 for an encoding that
    knows only how patches lie to each other. A pair of patches that a head sees (a logit above −∞) only before or only
    after the move counts as different by the logits' root mean square, one it never sees as alike. Both numbers only
    for whole patches, in models whose tokens stay on one grid.
    ``edge="black"``: what leaves is lost, what comes in is black; ``"wrap"``: it comes in on the other side, which only
    a model without positions takes for the same; ``"crop"``: two crops of the enlarged picture, the fair test
    for relative encodings, whose ``agreement`` is between the two. ``by``: rows and columns, negative for up and left.
    """
    if unit == "patches" and not isinstance(model, PatchClassifier):
        raise UserError("evaluation 'translation' needs unit='pixels' for a model without patches")
    patch = model.patch if isinstance(model, PatchClassifier) and unit == "patches" else (1, 1)
    pixels = by[0] * patch[0], by[1] * patch[1]
    height, width = data.shape[1:]
    if abs(pixels[0]) >= height or abs(pixels[1]) >= width:
        raise UserError(
            f"evaluation 'translation' got by={by} {unit}, which leaves nothing of {height}x{width} pixels; move less"
        )
    few = data.some(limit)
    after = predict(model, data, lambda images, start: (moved(images, pixels, edge)[1], None)).argmax(1)
    same_place = (lambda images, start: (moved(images, pixels, edge)[0], None)) if edge == "crop" else None
    before = predict(model, data, same_place).argmax(1)
    right, same = after == data.test.labels, after == before
    found = {"accuracy": share(right), "agreement": share(same), "agreement_and_right": share(right & same)}
    if not isinstance(model, PatchClassifier) or unit == "pixels":
        return found
    return found | _errors(model, few, by, pixels, edge)


def _errors(
    model: PatchClassifier,
    data: Dataset,
    by: tuple[int, int],
    pixels: tuple[int, int],
    edge: Literal["black", "wrap", "crop"],
) -> dict[str, float]:
    """How far tokens and logits are from those before the move."""
    device = model.project.weight.device
    errors: list[Tensor] = []
    for start in range(0, len(data.test), 100):
        images = data.test.images[start : start + 100].to(device)
        pair = [data.inputs(part) for part in moved(images, pixels, edge)]
        with torch.inference_mode():
            (tokens, logits), (tokens_moved, logits_moved) = (layer_tokens_and_logits(model, part) for part in pair)
        if not tokens:
            return {}
        at, to = (x.to(device) for x in shared(model.positions(pair[0]).grid, by, edge))
        each = [relative_error(b[:, to], a[:, at]) for a, b in zip(tokens, tokens_moved, strict=True)]
        first = relative_error(logits_moved[0][:, :, to][..., to], logits[0][:, :, at][..., at])
        errors.append(torch.stack([*each, first]))
    *each, first = torch.cat(errors, 1).mean(1).tolist()
    return {"tokens": each[-1], "logits": first} | {f"tokens_{n}": error for n, error in enumerate(each, 1)}


def translations(
    model: Classifier,
    data: Dataset,
    *,
    steps: tuple[int, ...] = (1, 2, 3, 4, 6, 8),
    edge: Literal["black", "wrap", "crop"] = "black",
    limit: int | None = 2000,
) -> dict[str, float]:
    """What a model makes of test images moved by more and more pixels, as ``translation`` gives it one by one.

    accuracy_1, …: share of ``limit`` test images, drawn once, 0 to 1, answered rightly after a move to the right by so
    many pixels; agreement_1, …: share answered as before it.
    """
    if not steps or min(steps) < 1 or len(set(steps)) < len(steps):
        raise UserError(f"evaluation 'translations' got steps={steps}; give different ones, of 1 pixel or more")
    few = data.some(limit)
    found: dict[str, dict[str, float]] = {"accuracy": {}, "agreement": {}}
    for step in sorted(steps):
        one = translation(model, few, by=(0, step), unit="pixels", edge=edge)
        for metric, values in found.items():
            values[f"{metric}_{step}"] = one[metric]
    return found["accuracy"] | found["agreement"]


def shifts(
    model: Classifier,
    data: Dataset,
    *,
    most: int = 4,
    edge: Literal["black", "wrap"] = "wrap",
    draws: int = 5,
    seed: int = 0,
) -> dict[str, float]:
    """Whether a model answers alike wherever a picture lies (Zhang, ICML 2019).

    consistency: share of the test images, 0 to 1, answered alike after two random moves (mean over ``draws`` such pairs).
    accuracy: share answered rightly, mean over the moves. worst: share answered rightly after every one of them.
    Each image moves by −``most`` to ``most`` pixels of its own in each direction, the same for all models; what leaves
    comes in on the other side (``edge="wrap"``) or is lost (``"black"``).
    """
    if most < 1 or draws < 1 or most >= min(data.shape[1:]):
        raise UserError(
            f"evaluation 'shifts' got most={most}, draws={draws}; take 1 or more, and less than the picture's side"
        )
    steps = torch.randint(-most, most + 1, (2 * draws, len(data.test), 2), generator=generator_of(seed))

    def answers(step: Tensor) -> Tensor:
        def change(images: Tensor, start: int) -> tuple[Tensor, None]:
            return scattered(images, step[start : start + len(images)].to(images.device), edge), None

        return predict(model, data, change).argmax(1)

    found = torch.stack([answers(step) for step in steps])  # (2 · draws, n)
    right = found == data.test.labels
    return {
        "consistency": share(found[::2] == found[1::2]),
        "accuracy": share(right),
        "worst": share(right.all(0)),
    }

"""Gradient matching for any model: optimizes an image until its gradient is close to the shared gradient."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from vitpos.attacks import projection as closed
from vitpos.attacks.projection import assumed
from vitpos.attacks.recovery import Found, Inapplicable, Progress, recover
from vitpos.attacks.victim import Case, Client, exact, share
from vitpos.errors import InputError
from vitpos.evaluations.context import EvalContext
from vitpos.evaluations.result import Result
from vitpos.models.attention import double_backward_attention
from vitpos.models.base import Classifier, PatchClassifier
from vitpos.patches import make_generator
from vitpos.positions import Positions
from vitpos.training.defenses import Gradients

FRAMES = 8  # stored images of an optimization, without the last
FALLS = (3 / 8, 5 / 8, 7 / 8)  # fractions of the steps after which the rate is divided by 10, as in Inverting Gradients


def matching(
    ctx: EvalContext,
    *,
    images: int = 8,
    setting: Literal["a", "b", "c"] = "a",
    ratio: float = 0.27,
    told: bool = True,
    attacker: Literal["naive", "unknown", "mask", "residual"] = "naive",
    precision: Literal["float64", "float32"] = "float32",
    defense: str | None = None,
    seed: int = 0,
    steps: int = 1000,
    rate: float = 0.1,
    loss: Literal["cosine", "l2"] = "cosine",
    alpha: float | None = 1.0,
    tv: float = 0.01,
    seam: float = 0.0,
    label: Literal["known", "inferred"] = "inferred",
    start: Literal["noise", "projection"] = "noise",
    restarts: int = 1,
    patience: int = 300,
) -> Result:
    """Reconstructs images by gradient matching: Adam changes an image until its gradient is close to the shared one.

    The distance of gradients is taken over all parameters except the encoding's; ``alpha`` times one minus the cosine
    similarity of the encoding's gradients is added (APRIL). Numbers that the client pruned are not compared. The ``l2``
    distance compares norms too, also if the client clipped the gradient.
    The image metrics are those of ``projection``. distance: lowest distance of the gradients. label: fraction of the labels
    that are correct. steps: number of steps taken. closed: fraction of the images whose optimization started from the
    result of ``projection``.

    Args:
        images: Number of test images, each of which is attacked separately.
        setting: As in MJP's Table 5: ``"a"`` shares the gradient of the original image; ``"b"`` shuffles the patches under
            a mask, and the target is the shuffled image; ``"c"`` shuffles them, and the target is the original image.
        ratio: Maximum fraction of masked patches in settings b and c.
        told: Hides the masked positions from the client's model (mask-aware), if its encoding has an unknown vector.
        attacker: What the attacker knows about hidden positions: ``"naive"`` assumes that there are none; ``"unknown"`` and
            ``"residual"`` detect them as positions without gradient; ``"mask"`` is given the mask.
        precision: Floating-point type of the client's computation and of the optimization.
        defense: Defense applied to the gradient, such as ``clip + noise``; by default that of training.
        seed: Seed of masks, permutations and noise.
        steps: Maximum number of steps.
        rate: Initial learning rate of Adam.
        loss: ``"cosine"``: one minus the cosine similarity, with the signs of its gradient (Inverting Gradients; Geiping et
            al., NeurIPS 2020); ``"l2"``: the squared distance (DLG; Zhu et al., NeurIPS 2019).
        alpha: Weight of the encoding's gradients; 0 ignores them, None treats them like all others, as DLG does.
        tv: Weight of the total variation of the image.
        seam: Weight of squared differences across patch borders (a prior of GradViT).
        label: ``"known"``, or ``"inferred"`` from the gradient of the head's bias (iDLG; Zhao et al., 2020).
        start: Starts from ``"noise"``, or from the result of ``"projection"`` if that attack applies.
        restarts: Number of optimizations from different noise; the one with the lowest distance is used.
        patience: Stops after this number of steps without a lower distance.
    """
    for name, value in (("steps", steps), ("restarts", restarts), ("patience", patience)):
        if value < 1:
            raise InputError(f"attack 'matching' got {name}={value}; choose 1 or more")
    if start == "projection" and restarts > 1:
        raise InputError(
            f"attack 'matching' got restarts={restarts} from one start, 'projection'; take restarts=1, or start='noise'"
        )
    if rate <= 0 or min(alpha or 0, tv, seam) < 0:
        raise InputError(
            f"attack 'matching' got rate={rate}, alpha={alpha}, tv={tv}, seam={seam}; take a rate above 0, the rest from 0"
        )
    data = ctx.data
    client = Client(ctx, images, setting, ratio, told, precision, defense, seed)
    own = exact(ctx.model, precision)
    like = next(own.parameters())
    ends = data.normalize(torch.tensor([0, 255], dtype=torch.uint8).view(2, 1, 1, 1).expand(-1, data.shape[0], 1, 1))
    low, high = ends.to(like)

    def attack(double: Classifier, case: Case, progress: Progress) -> Found:
        pos = assumed(double, case, attacker) if isinstance(double, PatchClassifier) else None
        goal = {name: g.to(like) for name, g in case.gradients.items()}
        used_label = case.label if label == "known" else inferred(goal)
        descent = Descent(own, goal, used_label, pos, loss, alpha, tv, seam, case.floor)
        generator = make_generator(seed)
        closed_form = _closed(double, case, attacker) if start == "projection" else []
        starts = closed_form or [torch.randn(case.inputs.shape, generator=generator) for _ in range(restarts)]
        runs = [
            descent.run(first.to(like), (low, high), steps, rate, patience, _part(progress, number, len(starts)))
            for number, first in enumerate(starts)
        ]
        best = min(runs, key=lambda found: found.about["distance"])
        about = {**best.about, "label": float(used_label == case.label), "closed": float(len(closed_form))}
        return Found(best.inputs, about, best.frames)

    with double_backward_attention():
        return recover(client, attack)


def _part(progress: Progress, number: int, count: int) -> Progress:
    """Converts the progress of part ``number`` of ``count`` to that of the whole."""
    return lambda fraction: progress((number + fraction) / count)


def _closed(model: Classifier, case: Case, attacker: closed.Attacker) -> list[Tensor]:
    """Returns a list with the reconstruction of ``projection``; an empty one if that attack does not apply."""
    try:
        return [closed.invert(model, case, attacker).inputs]
    except Inapplicable:
        return []


def inferred(gradients: Gradients) -> Tensor:
    """Returns the label (1,): the only class with a negative gradient of the head's bias (iDLG)."""
    last = [name for name in gradients if name.startswith("head.") and name.endswith("bias")]
    if not last:
        raise Inapplicable("its head has no bias to infer the label from; take label='known'")
    return gradients[last[-1]].argmin()[None]


@dataclass(frozen=True)
class Descent:
    """The optimization of one image until its gradient is close to the shared gradient."""

    model: Classifier
    goal: Gradients  # the shared gradient
    label: Tensor  # (1,)
    positions: Positions | None  # None for those of the grid
    loss: Literal["cosine", "l2"]
    alpha: float | None  # weight of the encoding's gradients; None treats them like all others
    tv: float  # weight of the total variation
    seam: float  # weight of squared differences across patch borders
    floor: float | None = None  # numbers of the goal up to this magnitude were pruned and are ignored

    def run(
        self,
        first: Tensor,
        ends: tuple[Tensor, Tensor],
        steps: int,
        rate: float,
        patience: int,
        progress: Progress = lambda fraction: None,
    ) -> Found:
        """Returns the image (1, C, height, width) of the lowest distance; ``ends`` bound the values of each channel."""
        x = first.clamp(*ends).requires_grad_()
        optimizer = torch.optim.Adam([x], lr=rate)
        best, lowest, since = x.detach().clone(), float("inf"), 0
        frames: list[Tensor] = []
        unused = (
            "encoding." if self.alpha == 0 else None
        )  # saves time if its gradients are expensive (matrix exponentials)
        for step in range(steps):
            if step * FRAMES // steps == len(frames):
                frames.append(x.detach().clone())
            distance = self.distance(share(self.model, x, self.label, self.positions, again=True, but=unused))
            (x.grad,) = torch.autograd.grad(distance + self.prior(x), x)
            if (value := distance.item()) < lowest:
                best, lowest, since = x.detach().clone(), value, 0
            elif (since := since + 1) >= patience or value != value:
                break
            if self.loss == "cosine":
                x.grad.sign_()
            optimizer.param_groups[0]["lr"] = rate * 0.1 ** sum(step >= fraction * steps for fraction in FALLS)
            optimizer.step()
            x.data.clamp_(*ends)
            progress((step + 1) / steps)
        frames += [best] * (FRAMES + 1 - len(frames))
        return Found(best, {"distance": lowest, "steps": float(step + 1)}, tuple(frames))

    def distance(self, gradients: Gradients) -> Tensor:
        """Returns the distance of gradients from the shared ones."""
        rest, own = self._parts(gradients)
        (goal_rest, goal_own), support = self._there, self._shared
        if support:
            rest, own = rest * support[0], own * support[1][: len(own)]
        value = _apart(rest, goal_rest) if self.loss == "cosine" else (rest - goal_rest).square().sum()
        return value + self.alpha * _apart(own, goal_own) if self.alpha and len(own) else value

    def _parts(self, gradients: Gradients) -> tuple[Tensor, Tensor]:
        """Returns all gradients except the encoding's, and the encoding's, as vectors; with ``alpha=None`` all and none."""
        own = [name for name in gradients if self.alpha is not None and name.startswith("encoding.")]
        return _flat(g for name, g in gradients.items() if name not in own), _flat(gradients[name] for name in own)

    @cached_property
    def _there(self) -> tuple[Tensor, Tensor]:
        """The two vectors of the shared gradient, with pruned numbers set to zero."""
        rest, own = self._parts(self.goal)
        if self.floor is None:
            return rest, own
        return rest.where(rest.abs() > self.floor, 0), own.where(own.abs() > self.floor, 0)

    @cached_property
    def _shared(self) -> tuple[Tensor, Tensor] | None:
        """Masks of the numbers that were not pruned; None without pruning."""
        return None if self.floor is None else (self._there[0] != 0, self._there[1] != 0)

    def prior(self, x: Tensor) -> Tensor | float:
        """Returns the weighted total variation and squared differences across patch borders of an image."""
        down, right = x.diff(dim=2), x.diff(dim=3)
        value: Tensor | float = 0.0
        if self.tv:
            value = self.tv * (down.abs().mean() + right.abs().mean())
        if self.seam and isinstance(self.model, PatchClassifier):
            height, width = self.model.patch
            seams = down[:, :, height - 1 :: height].square().mean(), right[..., width - 1 :: width].square().mean()
            value = value + self.seam * torch.stack(seams).nan_to_num().sum()  # NaN if there is one row or column
        return value


def _flat(gradients: Iterable[Tensor]) -> Tensor:
    """Concatenates gradients to one vector."""
    flat = [g.flatten() for g in gradients]
    return torch.cat(flat) if flat else torch.empty(0)


def _apart(one: Tensor, other: Tensor) -> Tensor:
    """Returns one minus the cosine similarity of two vectors.

    For nearly parallel vectors the value is computed as half the squared distance of the unit vectors, which is equal and
    does not cancel.
    """
    norms = one.norm().clamp_min(1e-30), other.norm().clamp_min(1e-30)
    value = 1 - one @ other / (norms[0] * norms[1])
    if value.item() > 1e-3:
        return value
    with torch.no_grad():  # only the value is replaced; the gradient of 1 − cos is accurate
        accurate = (one / norms[0] - other / norms[1]).square_().sum() / 2
    return value + (accurate - value.detach())

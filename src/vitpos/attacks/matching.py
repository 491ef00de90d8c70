"""Gradient matching: a picture whose gradient is the one that was shared, found step by step, for any model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from vitpos.attacks import projection as closed
from vitpos.attacks.projection import assumed
from vitpos.attacks.recovery import Found, Inapplicable, Recovery, recover, tell
from vitpos.attacks.victim import Case, Client, exact, share
from vitpos.data.dataset import Dataset
from vitpos.errors import UserError
from vitpos.models.attend import twice_differentiable
from vitpos.models.base import Classifier, PatchClassifier
from vitpos.patches import make_generator
from vitpos.positions import Positions
from vitpos.training.defenses import Gradients

FRAMES = 8  # of the film of a descent, before the last
FALLS = (3 / 8, 5 / 8, 7 / 8)  # shares of the way at which the step becomes a tenth, as in Inverting Gradients


def matching(
    model: Classifier,
    data: Dataset,
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
) -> Recovery:
    """Pixels by descent: a picture is changed until its gradient is the one that was shared.

    The distance of gradients is the squared one (``l2``, DLG; Zhu et al., NeurIPS 2019) or one less their cosine
    (``cosine``, Inverting Gradients; Geiping et al., NeurIPS 2020, Adam on signs), over all parameters but the
    encoding's; ``alpha`` times one less the cosine of the encoding's own gradients is added (APRIL), so that
    ``alpha=0`` leaves out whatever position gives away; with ``alpha=None`` they count as all others do, as in DLG.
    ``tv`` weighs total variation, ``seam`` the steps across borders of patches (GradViT's prior). The label is
    ``known``, or read from the gradient of the head's bias (iDLG; Zhao et al., 2020). Numbers that a client left out
    (``prune``) are not compared; lengths are by ``l2``, also where a client scaled them (``clip``).
    ``start``: noise, or what ``projection`` finds, if it applies. Of ``restarts`` the one with the least distance counts;
    a descent ends early if its distance has not fallen for ``patience`` steps.
    Numbers are those that ``projection`` has of pictures; distance: that of the gradients at the end, label: share of
    labels that were read rightly, steps: how many were taken, closed: share of the pictures that began from what
    ``projection`` finds.
    """
    for name, value in (("steps", steps), ("restarts", restarts), ("patience", patience)):
        if value < 1:
            raise UserError(f"attack 'matching' got {name}={value}; choose 1 or more")
    if start == "projection" and restarts > 1:
        raise UserError(
            f"attack 'matching' got restarts={restarts} from one start, 'projection'; take 1, or start='noise'"
        )
    if rate <= 0 or min(alpha or 0, tv, seam) < 0:
        raise UserError(
            f"attack 'matching' got rate={rate}, alpha={alpha}, tv={tv}, seam={seam}; take a rate above 0, the rest from 0"
        )
    client = Client(model, data, images, setting, ratio, told, precision, defense, seed)
    own, double = exact(model, precision), exact(model)
    like = next(own.parameters())
    ends = data.normalize(torch.tensor([0, 255], dtype=torch.uint8).view(2, 1, 1, 1).expand(-1, data.shape[0], 1, 1))
    low, high = ends.to(like)

    def attack(case: Case) -> Found:
        pos = assumed(double, case, attacker) if isinstance(double, PatchClassifier) else None
        goal = {name: g.to(like) for name, g in case.gradients.items()}
        answer = case.label if label == "known" else inferred(goal)
        descent = Descent(own, goal, answer, pos, loss, alpha, tv, seam, case.floor)
        generator = make_generator(seed)
        answers = _closed(double, case, attacker) if start == "projection" else []
        firsts = answers or [torch.randn(case.inputs.shape, generator=generator) for _ in range(restarts)]
        tries = [descent.run(first.to(like), (low, high), steps, rate, patience) for first in firsts]
        best = min(tries, key=lambda found: found.about["distance"])
        about = {**best.about, "label": float(answer == case.label), "closed": float(len(answers))}
        return Found(best.inputs, about, best.frames)

    with twice_differentiable():
        return recover(client, attack)


def _closed(model: Classifier, case: Case, attacker: closed.Attacker) -> list[Tensor]:
    """What the closed form finds, if there is one."""
    try:
        return [closed.invert(model, case, attacker).inputs]
    except Inapplicable:
        return []


def inferred(gradients: Gradients) -> Tensor:
    """(1,): the label, which alone has a negative gradient in the bias of the last layer (iDLG)."""
    last = [name for name in gradients if name.startswith("head.") and name.endswith("bias")]
    if not last:
        raise Inapplicable("its head has no bias to read the label from; take label='known'")
    return gradients[last[-1]].argmin()[None]


@dataclass(frozen=True)
class Descent:
    """From a first picture to one whose gradient is near the one that was shared."""

    model: Classifier
    goal: Gradients
    label: Tensor
    positions: Positions | None
    loss: Literal["cosine", "l2"]
    alpha: float | None
    tv: float
    seam: float
    floor: float | None = None  # numbers of the goal up to this size were left out, and do not count

    def run(self, first: Tensor, ends: tuple[Tensor, Tensor], steps: int, rate: float, patience: int) -> Found:
        """The picture (1, C, height, width) of the least distance on the way."""
        x = first.clamp(*ends).requires_grad_()
        optimizer = torch.optim.Adam([x], lr=rate)
        best, least, since = x.detach().clone(), float("inf"), 0
        frames: list[Tensor] = []
        unused = "encoding." if self.alpha == 0 else None  # whose gradients may cost much, as those of exponentials do
        for step in range(steps):
            if step * FRAMES // steps == len(frames):
                frames.append(x.detach().clone())
            distance = self.distance(share(self.model, x, self.label, self.positions, again=True, but=unused))
            (x.grad,) = torch.autograd.grad(distance + self.prior(x), x)
            if (value := distance.item()) < least:
                best, least, since = x.detach().clone(), value, 0
            elif (since := since + 1) >= patience or value != value:
                break
            if self.loss == "cosine":
                x.grad.sign_()
            optimizer.param_groups[0]["lr"] = rate * 0.1 ** sum(step >= share * steps for share in FALLS)
            optimizer.step()
            x.data.clamp_(*ends)
            tell(1 / steps)
        frames += [best] * (FRAMES + 1 - len(frames))
        return Found(best, {"distance": least, "steps": float(step + 1)}, tuple(frames))

    def distance(self, gradients: Gradients) -> Tensor:
        """How far gradients are from the ones that were shared."""
        rest, own = self._parts(gradients)
        (there, own_there), support = self._there, self._shared
        if support:
            rest, own = rest * support[0], own * support[1][: len(own)]
        value = _apart(rest, there) if self.loss == "cosine" else (rest - there).square().sum()
        return value + self.alpha * _apart(own, own_there) if self.alpha and len(own) else value

    def _parts(self, gradients: Gradients) -> tuple[Tensor, Tensor]:
        """All gradients but the encoding's own, and these; all and none if they are not to be told apart."""
        own = [name for name in gradients if self.alpha is not None and name.startswith("encoding.")]
        return _flat(g for name, g in gradients.items() if name not in own), _flat(gradients[name] for name in own)

    @cached_property
    def _there(self) -> tuple[Tensor, Tensor]:
        rest, own = self._parts(self.goal)
        if self.floor is None:
            return rest, own
        return rest.where(rest.abs() > self.floor, 0), own.where(own.abs() > self.floor, 0)

    @cached_property
    def _shared(self) -> tuple[Tensor, Tensor] | None:
        return None if self.floor is None else (self._there[0] != 0, self._there[1] != 0)

    def prior(self, x: Tensor) -> Tensor | float:
        """What is unlike a picture: rough surfaces, and steps where patches meet."""
        down, right = x.diff(dim=2), x.diff(dim=3)
        value: Tensor | float = 0.0
        if self.tv:
            value = self.tv * (down.abs().mean() + right.abs().mean())
        if self.seam and isinstance(self.model, PatchClassifier):
            height, width = self.model.patch
            seams = down[:, :, height - 1 :: height].square().mean(), right[..., width - 1 :: width].square().mean()
            value = value + self.seam * torch.stack(seams).nan_to_num().sum()  # of one row of patches there is none
        return value


def _flat(gradients: Iterable[Tensor]) -> Tensor:
    """Gradients as one vector."""
    chosen = [g.flatten() for g in gradients]
    return torch.cat(chosen) if chosen else torch.empty(0)


def _apart(one: Tensor, other: Tensor) -> Tensor:
    """One less the cosine; of vectors that are nearly alike, half the squared distance at unit length, which is exact."""
    lengths = one.norm().clamp_min(1e-30), other.norm().clamp_min(1e-30)
    value = 1 - one @ other / (lengths[0] * lengths[1])
    if value.item() > 1e-3:
        return value
    with torch.no_grad():  # the slope is right as it is
        exactly = (one / lengths[0] - other / lengths[1]).square_().sum() / 2
    return value + (exactly - value.detach())

"""Runs an attack on every image of a client and compares the reconstructions with the targets."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from vitpos.attacks.victim import Case, Client, exact
from vitpos.data.dataset import Dataset
from vitpos.evaluations.result import Result
from vitpos.metrics.image_similarity import image_metrics, psnr
from vitpos.models.base import Classifier

Progress = Callable[[float], None]  # called with the fraction that is done, 0 to 1
CEILING = 320.0  # PSNR of identical images, in decibels
AVERAGES = {  # over the images; the mean for all other metrics
    "condition": statistics.median,
    "places": statistics.median,
}


class Inapplicable(Exception):
    """Raised by an attack that does not apply to a model; the message is the reason in its result."""


@dataclass(frozen=True)
class Found:
    """The reconstruction from one gradient.

    Args:
        inputs: Normalized image (1, C, height, width), as the model gets it.
        about: Metric → value, such as the rank of a linear system.
        frames: Normalized images (1, C, height, width) during the optimization; empty for closed forms.
    """

    inputs: Tensor
    about: Mapping[str, float] = field(default_factory=dict)
    frames: tuple[Tensor, ...] = ()


def recover(client: Client, attack: Callable[[Classifier, Case, Progress], Found]) -> Result:
    """Attacks every image of a client and compares the reconstructions with the targets.

    Args:
        attack: Called with the model in double precision, a case, and a callback for the fraction of it that is done.
    """
    double = exact(client.ctx.model)
    cases: list[Case] = []
    found: list[Found] = []

    def progress(fraction: float) -> None:
        client.ctx.progress((len(found) + fraction) / len(client))

    try:
        for case in client.cases():
            cases.append(case)
            found.append(attack(double, case, progress))
    except Inapplicable as why:
        return Result(reason=str(why))
    data = client.ctx.data
    seen, goal = (as_pictures(data, x) for x in ((f.inputs for f in found), (c.goal for c in cases)))
    each = {name: values.clamp(max=CEILING).tolist() for name, values in image_metrics(seen, goal).items()}
    numbers = {name: statistics.fmean(values) for name, values in each.items()}
    numbers["psnr_worst"], numbers["psnr_best"] = min(each["psnr"]), max(each["psnr"])
    constant = as_pictures(data, (torch.zeros_like(c.goal) for c in cases))  # normalized values of 0 are the mean color
    numbers["psnr_grey"] = float(psnr(constant, goal).mean())
    shown = torch.cat([_shown(case) for case in cases]).to(seen)  # (n, 1, height, width)
    if (fraction_shown := shown.mean((1, 2, 3))).all():
        errors = ((seen - goal).square().mean(1, keepdim=True) * shown).mean((1, 2, 3)) / fraction_shown
        numbers["psnr_shown"] = float(-10 * errors.clamp_min(10 ** (-CEILING / 10)).log10().mean())
    for name in found[0].about:
        numbers[name] = AVERAGES.get(name, statistics.fmean)([f.about[name] for f in found])
    frames = [as_pictures(data, f.frames) for f in found if f.frames]
    images = {"reconstruction": seen, "target": goal}
    return Result(numbers, images=images | ({"trajectory": torch.stack(frames)} if frames else {}))


def _shown(case: Case) -> Tensor:
    """Returns a mask (1, 1, height, width): 1 for pixels of patches whose positions are not hidden, otherwise 0."""
    size = case.goal.shape[2:]
    return torch.ones(1, 1, *size) if case.positions is None else case.positions.known_pixels(size).cpu().float()


def as_pictures(data: Dataset, inputs: Iterable[Tensor]) -> Tensor:
    """Converts normalized images to pixel values 0 to 1, clamped, in double precision on the CPU."""
    normalized = torch.cat([x.detach().double().cpu() for x in inputs])
    mean, std = (torch.tensor(v, dtype=torch.float64).view(-1, 1, 1) for v in (data.mean, data.std))
    return (normalized * std + mean).clamp(0, 1)

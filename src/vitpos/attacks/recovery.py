"""What an attack found, beside what it was to find."""

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
CEILING = 320.0  # decibels of two pictures that are the same to the last bit
AVERAGES = {
    "condition": statistics.median,
    "places": statistics.median,
}  # of what attacks say of themselves; means of all else


class Inapplicable(Exception):
    """Why an attack has nothing to say of a model."""


@dataclass(frozen=True)
class Found:
    """What an attack made of one gradient: a picture (1, C, height, width) as a model reads it, and what it knows of it."""

    inputs: Tensor
    about: Mapping[str, float] = field(default_factory=dict)
    frames: tuple[Tensor, ...] = ()  # how it came about


def recover(client: Client, attack: Callable[[Classifier, Case, Progress], Found]) -> Result:
    """Attacks every image of a client and compares the reconstructions with the targets.

    ``attack`` is given the model in double precision, a case and a callback for the fraction of it that is done.
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
    flat = as_pictures(data, (torch.zeros_like(c.goal) for c in cases))  # inputs of 0 are the mean colour
    numbers["psnr_grey"] = float(psnr(flat, goal).mean())
    share = torch.cat([_shown(case) for case in cases]).to(seen)  # (n, 1, height, width)
    if (shown := share.mean((1, 2, 3))).all():
        errors = ((seen - goal).square().mean(1, keepdim=True) * share).mean((1, 2, 3)) / shown
        numbers["psnr_shown"] = float(-10 * errors.clamp_min(10 ** (-CEILING / 10)).log10().mean())
    for name in found[0].about:
        numbers[name] = AVERAGES.get(name, statistics.fmean)([f.about[name] for f in found])
    frames = [as_pictures(data, f.frames) for f in found if f.frames]
    images = {"reconstruction": seen, "target": goal}
    return Result(numbers, images=images | ({"trajectory": torch.stack(frames)} if frames else {}))


def _shown(case: Case) -> Tensor:
    """(1, 1, height, width): which pixels lie in patches whose places were not hidden; all, if nothing was."""
    size = case.goal.shape[2:]
    return torch.ones(1, 1, *size) if case.positions is None else case.positions.known_pixels(size).cpu().float()


def as_pictures(data: Dataset, inputs: Iterable[Tensor]) -> Tensor:
    """What models read as pictures from 0 to 1, in double precision; what is no colour is cut off."""
    every = torch.cat([x.detach().double().cpu() for x in inputs])
    mean, std = (torch.tensor(v, dtype=torch.float64).view(-1, 1, 1) for v in (data.mean, data.std))
    return (every * std + mean).clamp(0, 1)

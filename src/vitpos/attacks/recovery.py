"""What an attack found, beside what it was to find."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

import torch
from torch import Tensor

from vitpos.attacks.victim import Case, Client
from vitpos.data.base import Dataset
from vitpos.metrics.image_similarity import image_metrics, psnr

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


@dataclass(frozen=True)
class Recovery:
    """The numbers of an attack, and pictures (n, C, height, width) from 0 to 1; ``why`` where there are none."""

    numbers: dict[str, float]
    found: Tensor | None = None
    goal: Tensor | None = None
    frames: Tensor | None = None  # (n, steps, C, height, width)
    why: str = ""


_told: ContextVar[Callable[[float], None]] = ContextVar("told", default=lambda share: None)


@contextmanager
def following(told: Callable[[float], None]) -> Iterator[None]:
    """While this lasts, ``told`` hears of every part of a picture's attack that is done, 1 in all for each."""
    before = _told.set(told)
    try:
        yield
    finally:
        _told.reset(before)


def tell(share: float) -> None:
    """Says that so much more of an attack on a picture is done."""
    _told.get()(share)


def recover(client: Client, attack: Callable[[Case], Found]) -> Recovery:
    """Attacks every picture of a client and compares."""
    cases, found = [], []
    try:
        for case in client.cases():
            cases.append(case)
            found.append(attack(case))
    except Inapplicable as why:
        return Recovery({}, why=str(why))
    seen, goal = (as_pictures(client.data, x) for x in ((f.inputs for f in found), (c.goal for c in cases)))
    each = {name: values.clamp(max=CEILING).tolist() for name, values in image_metrics(seen, goal).items()}
    numbers = {name: statistics.fmean(values) for name, values in each.items()}
    numbers["psnr_worst"], numbers["psnr_best"] = min(each["psnr"]), max(each["psnr"])
    flat = as_pictures(client.data, (torch.zeros_like(c.goal) for c in cases))  # inputs of 0 are the mean colour
    numbers["psnr_grey"] = float(psnr(flat, goal).mean())
    share = torch.cat([_shown(case) for case in cases]).to(seen)  # (n, 1, height, width)
    if (shown := share.mean((1, 2, 3))).all():
        errors = ((seen - goal).square().mean(1, keepdim=True) * share).mean((1, 2, 3)) / shown
        numbers["psnr_shown"] = float(-10 * errors.clamp_min(10 ** (-CEILING / 10)).log10().mean())
    for name in found[0].about:
        numbers[name] = AVERAGES.get(name, statistics.fmean)([f.about[name] for f in found])
    frames = [as_pictures(client.data, f.frames) for f in found if f.frames]
    return Recovery(numbers, seen, goal, torch.stack(frames) if frames else None)


def _shown(case: Case) -> Tensor:
    """(1, 1, height, width): which pixels lie in patches whose places were not hidden; all, if nothing was."""
    size = case.goal.shape[2:]
    return torch.ones(1, 1, *size) if case.positions is None else case.positions.known_pixels(size).cpu().float()


def as_pictures(data: Dataset, inputs: Iterable[Tensor]) -> Tensor:
    """What models read as pictures from 0 to 1, in double precision; what is no colour is cut off."""
    every = torch.cat([x.detach().double().cpu() for x in inputs])
    mean, std = (torch.tensor(v, dtype=torch.float64).view(-1, 1, 1) for v in (data.mean, data.std))
    return (every * std + mean).clamp(0, 1)

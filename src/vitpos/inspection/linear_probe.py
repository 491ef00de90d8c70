"""Where position lives: how well row and column can be told from the tokens between layers, by a linear regression."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from vitpos.data.base import Dataset
from vitpos.errors import UserError
from vitpos.inspection._batches import grid_seen, pictures
from vitpos.models.activations import look_inside, on_one_grid
from vitpos.models.base import Classifier
from vitpos.positions import Positions

STRENGTHS = tuple(10.0**power for power in range(-8, 5))  # of the ridge, in mean variances of a channel
PARTS = 5  # of the images, in turns: three to fit on, one to choose the ridge by, one to test


@dataclass(frozen=True)
class Probe:
    """What a linear regression of the place from a token finds on images that it was not fitted on.

    r2: share of the variance of row and column that it explains, the mean of both; 1 is all of it, 0 is chance, and
    below 0 is worse. error: mean absolute error of row and column, in patches, the mean of both; chance: the error of
    whoever always says the middle of the grid. An axis of one place does not count. standard_error: of r2, by
    what it is in each of the images, NaN if there is one; fitted to other images it would differ as well.
    """

    r2: float
    standard_error: float
    error: float
    chance: float


def probe_places(
    model: Classifier, data: Dataset, *, shuffled: bool = True, limit: int | None = 500, seed: int = 0
) -> list[Probe]:
    """A probe for each layer: of the patch tokens that enter the first one, then of those that each layer leaves.

    ``shuffled``: the patches of each image change places by a permutation of its own and positions stay with the slots,
    so that what a patch shows says nothing of where it is, and a model without positions is at chance in every layer. Of
    ``limit`` test images, drawn by a seed, three fifths are fitted on, one fifth chooses the strength of the ridge and
    one fifth gives the numbers. A regression is linear: it finds places that lie in order, or that have channels enough,
    as a table of unrelated vectors has where there are no more places than channels.
    """
    seen = on_one_grid(model, "a probe of places")
    grid = grid_seen(seen, data)
    count = len(data.some(limit, seed=seed).test)
    if grid == (1, 1) or count < PARTS:
        raise UserError(
            f"a probe of places got {count} images of {grid[0]}x{grid[1]} patches; "
            f"give {PARTS} images or more, of two patches or more"
        )
    places = Positions.of(grid, device=seen.project.weight.device).coords[0].double()  # (N, 2)
    turn = torch.arange(count) % PARTS
    layers = range(seen.geometry.depth + 1)
    fitted, held = ([_Moments(places, seen.geometry.dim) for _ in layers] for _ in range(2))
    means: list[list[Tensor]] = [[] for _ in layers]  # of squares and sizes in each image, by axis: (B, 2, 2)

    def listen(part: Tensor, hear: Callable[[int, Tensor], None]) -> None:
        which = part.nonzero()[:, 0]
        for images in pictures(seen, data, limit=limit, seed=seed, shuffled=shuffled, which=which):
            look_inside(seen, images, tokens=hear)

    def test(layer: int, x: Tensor) -> None:
        slope, start = lines[layer]
        wrong = x.double() @ slope + start - places  # (B, N, 2)
        means[layer].append(torch.stack([wrong.square().mean(1), wrong.abs().mean(1)], 1))

    with torch.inference_mode():
        listen(turn < PARTS - 2, lambda layer, x: fitted[layer].add(x))
        listen(turn == PARTS - 2, lambda layer, x: held[layer].add(x))
        lines = [_best_line(*pair) for pair in zip(fitted, held, strict=True)]
        listen(turn == PARTS - 1, test)
    return [_probe(torch.cat(each), places) for each in means]


def _probe(errors: Tensor, places: Tensor) -> Probe:
    """From the mean squared and the mean absolute error of each image and axis (images, 2, 2)."""
    squares, sizes = errors.unbind(1)
    apart = places - places.mean(0)
    axes = apart.square().mean(0) > 0
    r2 = (1 - squares[:, axes] / apart.square().mean(0)[axes]).mean(1)
    about = r2.std().item() / len(r2) ** 0.5 if len(r2) > 1 else math.nan
    return Probe(r2.mean().item(), about, sizes[:, axes].mean().item(), apart.abs().mean(0)[axes].mean().item())


Line = tuple[Tensor, Tensor]  # slope (D, 2) and start (2,)


class _Moments:
    """Sums over tokens (…, N, D) that a linear regression of their places (N, 2) needs, in float64."""

    def __init__(self, places: Tensor, dim: int):
        self.places = places
        self.tokens = 0
        self.sum, self.products, self.towards = (places.new_zeros(shape) for shape in ((dim,), (dim, dim), (dim, 2)))

    def add(self, x: Tensor) -> None:
        """Another batch (B, N, D)."""
        x = x.double()
        flat = x.flatten(0, 1)
        self.tokens += len(flat)
        self.sum += flat.sum(0)
        self.products += flat.mT @ flat
        self.towards += x.sum(0).mT @ self.places

    def centred(self) -> tuple[Tensor, Tensor, Tensor]:
        """The mean token (D,), the covariance of tokens (D, D), and that of tokens and places (D, 2)."""
        mean = self.sum / self.tokens
        covariance = self.products / self.tokens - mean[:, None] * mean
        return mean, covariance, self.towards / self.tokens - mean[:, None] * self.places.mean(0)


def _best_line(fitted: _Moments, held: _Moments) -> Line:
    """The ridge regression, in closed form, whose strength errs least on what was held back."""
    mean, covariance, towards = fitted.centred()
    values, directions = torch.linalg.eigh(covariance)
    along = directions.mT @ towards
    unit = values.mean().clamp_min(torch.finfo(torch.float64).tiny)
    lines = []
    for strength in STRENGTHS:
        slope = directions @ (along / (values.clamp_min(0) + strength * unit)[:, None])
        lines.append((slope, fitted.places.mean(0) - mean @ slope))
    errors = torch.stack([_squared_error(*line, held) for line in lines])
    return lines[int(errors.argmin())]


def _squared_error(slope: Tensor, start: Tensor, held: _Moments) -> Tensor:
    """The mean squared error of a line, summed over both axes, less what is the same for every line."""
    mean, covariance, towards = held.centred()
    missed = mean @ slope + start - held.places.mean(0)
    return (slope * (covariance @ slope)).sum() - 2 * (slope * towards).sum() + missed.square().sum()

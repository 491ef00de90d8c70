"""Linear probe: ridge regression of row and column on the patch tokens of each layer."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from vitpos.data.dataset import Dataset
from vitpos.errors import InputError
from vitpos.float64 import to_float64
from vitpos.inspection._batches import image_batches, image_grid
from vitpos.models.activations import capture_activations, require_global_attention
from vitpos.models.base import Classifier
from vitpos.positions import Positions

PENALTIES = tuple(10.0**power for power in range(-8, 5))  # in units of the mean variance of a channel
PARTS = 5  # images are assigned in turn: three parts to fit, one to choose the penalty, one to test


@dataclass(frozen=True)
class Probe:
    """Scores of a linear regression from the tokens of one layer to row and column, on held-out images.

    r2: fraction of the variance of row and column explained, mean of both; 1 is perfect, 0 chance, negative worse.
    error: mean absolute error of row and column, in patches. chance: the error of a constant predictor (the center of
    the grid). An axis with one position does not count. standard_error: of r2 over the test images, NaN for one image;
    it does not include the variation between fits.
    """

    r2: float
    standard_error: float
    error: float
    chance: float


def probe_positions(
    model: Classifier, data: Dataset, *, shuffled: bool = True, limit: int | None = 500, seed: int = 0
) -> list[Probe]:
    """Fits a linear probe per layer from patch tokens to row and column; returns depth + 1 scores (R² and error).

    The first is for the tokens that enter the first block, the others for those that each block returns. Three fifths
    of the images are fitted, one fifth chooses the ridge penalty, one fifth gives the scores. A linear probe finds
    positions if the tokens vary smoothly with them, or if tokens have at least as many channels as there are positions.

    Args:
        shuffled: permute the patches of each image, so that content carries no information about position; a model
            without position encoding is then at chance in every layer.
        limit: number of test images, sampled with ``seed``.
    """
    vit = require_global_attention(model, "a position probe")
    grid = image_grid(vit, data)
    count = len(data.sample_test(limit, seed=seed).test)
    if grid == (1, 1) or count < PARTS:
        raise InputError(
            f"a position probe got {count} images of {grid[0]}x{grid[1]} patches; "
            f"use {PARTS} images or more and 2 patches or more"
        )
    coords = to_float64(Positions.from_grid(grid, device=vit.device).coords[0])  # (N, 2)
    part = torch.arange(count) % PARTS
    layers = range(vit.geometry.depth + 1)
    train, validation = ([_Moments(coords, vit.geometry.dim) for _ in layers] for _ in range(2))
    errors: list[list[Tensor]] = [[] for _ in layers]  # squared and absolute, per image and axis: (B, 2, 2)

    def for_each_tokens(mask: Tensor, on_tokens: Callable[[int, Tensor], None]) -> None:
        indices = mask.nonzero()[:, 0]
        for images in image_batches(vit, data, limit=limit, seed=seed, shuffled=shuffled, indices=indices):
            capture_activations(vit, images, on_tokens=on_tokens)

    def test(layer: int, x: Tensor) -> None:
        weight, bias = fits[layer]
        error = to_float64(x) @ weight + bias - coords  # (B, N, 2)
        errors[layer].append(torch.stack([error.square().mean(1), error.abs().mean(1)], 1))

    with torch.inference_mode():
        for_each_tokens(part < PARTS - 2, lambda layer, x: train[layer].add(x))
        for_each_tokens(part == PARTS - 2, lambda layer, x: validation[layer].add(x))
        fits = [_best_ridge(*pair) for pair in zip(train, validation, strict=True)]
        for_each_tokens(part == PARTS - 1, test)
    return [_probe(torch.cat(layer), coords) for layer in errors]


def _probe(errors: Tensor, coords: Tensor) -> Probe:
    """Returns the scores of one layer: R² with its standard error, mean absolute error, and that of a constant predictor.

    An axis with one position does not count.

    Args:
        errors: (images, 2, 2), errors in row and column (last axis), mean over the patches of an image: squared errors
            at index 0 of the middle axis, absolute errors at index 1.
        coords: (N, 2), true row and column of each position.
    """
    squared, absolute = errors.unbind(1)
    centered = coords - coords.mean(0)
    axes = centered.square().mean(0) > 0
    r2 = (1 - squared[:, axes] / centered.square().mean(0)[axes]).mean(1)
    standard_error = r2.std().item() / len(r2) ** 0.5 if len(r2) > 1 else math.nan
    chance = centered.abs().mean(0)[axes].mean().item()
    return Probe(r2.mean().item(), standard_error, absolute[:, axes].mean().item(), chance)


Ridge = tuple[Tensor, Tensor]  # weight (D, 2) and bias (2,)


class _Moments:
    """Accumulates the sums over tokens that a linear regression from tokens to their coordinates needs, in float64.

    They are the sums of tokens (D,), of products of their channels (D, D) and of products with coordinates (D, 2).
    """

    def __init__(self, coords: Tensor, dim: int):
        self.coords = coords
        self.tokens = 0
        self.sum, self.products, self.cross = (coords.new_zeros(shape) for shape in ((dim,), (dim, dim), (dim, 2)))

    def add(self, x: Tensor) -> None:
        """Adds a batch of patch tokens (B, N, D) to the sums."""
        x = to_float64(x)
        flat = x.flatten(0, 1)
        self.tokens += len(flat)
        self.sum += flat.sum(0)
        self.products += flat.mT @ flat
        self.cross += x.sum(0).mT @ self.coords

    def centered(self) -> tuple[Tensor, Tensor, Tensor]:
        """Returns mean token (D,), covariance of tokens (D, D), and covariance of tokens and coordinates (D, 2)."""
        mean = self.sum / self.tokens
        covariance = self.products / self.tokens - mean[:, None] * mean
        return mean, covariance, self.cross / self.tokens - mean[:, None] * self.coords.mean(0)


def _best_ridge(train: _Moments, validation: _Moments) -> Ridge:
    """Fits a ridge regression from tokens to row and column for each penalty in ``PENALTIES``.

    Returns weight (D, 2) and bias (2,) of the fit with the smallest squared error on the validation images. ``train``
    and ``validation`` hold the sums over tokens that the regression needs.
    """
    mean, covariance, cross = train.centered()
    values, directions = torch.linalg.eigh(covariance)
    rotated = directions.mT @ cross
    unit = values.mean().clamp_min(torch.finfo(torch.float64).tiny)
    fits = []
    for penalty in PENALTIES:
        weight = directions @ (rotated / (values.clamp_min(0) + penalty * unit)[:, None])
        fits.append((weight, train.coords.mean(0) - mean @ weight))
    errors = torch.stack([_squared_error(*fit, validation) for fit in fits])
    return fits[int(errors.argmin())]


def _squared_error(weight: Tensor, bias: Tensor, moments: _Moments) -> Tensor:
    """Returns the mean squared error () of tokens @ weight + bias as prediction of row and column, summed over both.

    The variance of the coordinates, which is equal for all fits, is left out.

    Args:
        weight, bias: (D, 2) and (2,).
        moments: sums over the tokens on which the error is computed.
    """
    mean, covariance, cross = moments.centered()
    offset = mean @ weight + bias - moments.coords.mean(0)
    return (weight * (covariance @ weight)).sum() - 2 * (weight * cross).sum() + offset.square().sum()

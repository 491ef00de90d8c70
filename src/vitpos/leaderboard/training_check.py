"""A short training of the baselines, which shows whether two versions of the package train in the same way."""

from __future__ import annotations

from dataclasses import replace

import torch

from vitpos.data.dataset import Dataset, Split, load
from vitpos.lab.cell_models import build_model
from vitpos.lab.cells import Cell
from vitpos.lab.executor import single_threaded
from vitpos.leaderboard.protocol import Protocol
from vitpos.training.loop import fit

IMAGES, BATCH, EPOCHS = 32, 8, 3


def training_losses(protocol: Protocol, data: str | None = None, cell: Cell | None = None) -> dict[str, float]:
    """Trains the baseline encodings of a leaderboard protocol for 12 steps of 8 random images; returns encoding → loss.

    The loss is the mean of the last 4 steps. Model, optimizer, schedule and augmentation are those of the protocol. Its
    file stores the expected losses: a version of the package with other losses trains differently.

    Args:
        data: Spec of the data set, for protocols that need one; image size and classes are taken from it.
        cell: Model, encoding and recipe of another training, of which 12 steps are made too, with seed 0.
    """
    cells = [protocol.experiment_for(name, "added", seeds=[0], data=data).cells[0] for name in protocol.baselines]
    if cell and cell.encoding not in protocol.baselines:
        cells.append(replace(cell, seed=0))  # the loss depends on the seed, and must not on the seeds of an entry
    losses = {}
    with single_threaded():  # faster for 8 images
        for cell in cells:
            random_data = _random_images(load(cell.data))
            recipe = replace(cell.train, epochs=EPOCHS, batch_size=BATCH, grad_accum=1)
            *_, last = fit(build_model(cell, random_data), random_data, recipe, seed=0)
            losses[cell.encoding] = last.metrics["loss"]
    return losses


def _random_images(data: Dataset) -> Dataset:
    """Returns a data set of 32 random images and labels, with the image shape, classes and normalization of ``data``."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (IMAGES, *data.shape), generator=generator, dtype=torch.uint8)
    split = Split(images, torch.randint(len(data.classes), (IMAGES,), generator=generator))
    return replace(data, train=split, test=split)

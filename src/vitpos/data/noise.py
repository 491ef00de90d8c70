"""``noise``: random pixels and classes, for trials without real data."""

from __future__ import annotations

import torch

from vitpos.data.dataset import Dataset, Split
from vitpos.errors import InputError


def noise(
    *,
    shape: tuple[int, int, int] = (3, 32, 32),
    classes: int = 10,
    count: int = 64,
    name: str = "noise",
    seed: int = 0,
) -> Dataset:
    """Uniformly random pixels in equally frequent classes, to try a model or a recipe without real data.

    Args:
        shape: Channels, height and width of the images.
        classes: Number of classes.
        count: Number of training images; there are as many test images.
        name: Prefix of the class names, which are "noise 0", "noise 1", … by default.
        seed: Seed of the pixels.
    """
    if min(*shape, classes, count) < 1 or not 0 <= seed < 2**62:
        raise InputError(
            f"data 'noise' got shape={shape}, classes={classes}, count={count}, seed={seed}; take 1 or more, "
            "and a seed from 0"
        )
    generator = torch.Generator().manual_seed(seed)
    train, test = (
        Split(
            torch.randint(256, (count, *shape), generator=generator, dtype=torch.uint8), torch.arange(count) % classes
        )
        for _ in range(2)
    )
    names = tuple(f"{name} {label}" for label in range(classes))
    return Dataset(train, test, names, mean=(0.5,) * shape[0], std=(12**-0.5,) * shape[0])

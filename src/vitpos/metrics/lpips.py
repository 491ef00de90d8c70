"""LPIPS: how differently AlexNet sees two pictures, its channels weighted so as people judge."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from vitpos.errors import UserError
from vitpos.metrics._image_pair import check_image_pair
from vitpos.metrics.lpips_weights import INSTALL, Stage, available, weights

SMALLEST = 31  # pixels: 7 after the first convolution, 3 and 1 after the poolings
SHIFT, SCALE = (-0.030, -0.088, -0.188), (0.458, 0.448, 0.450)  # of red, green and blue in −1…1


def lpips(found: Tensor, true: Tensor) -> Tensor:
    """Learned perceptual distance (Zhang et al., CVPR 2018; AlexNet, heads of version 0.1): 0 the same, about 1 unlike.

    Two batches (B, 1 or 3, height, width) in 0…1 → (B,). After each of five convolutions: both pictures' features at a
    place, scaled to length 1; their squared differences, weighted by channel; the mean over places. The distance is the
    sum of the five. It is worked out in float32, as the weights are, and at the pictures' own size: the original too
    takes anything from 31×31 pixels on, though at 32 its last three stages see only one place. Grey is repeated.
    """
    found, true = check_image_pair(found, true)
    if reason := obstacle(found.shape[1:]):
        raise UserError(reason)
    pictures = torch.cat([found, true]).float().expand(-1, 3, -1, -1)  # (2B, 3, height, width)
    shift, scale = (pictures.new_tensor(values)[:, None, None] for values in (SHIFT, SCALE))
    stages = [Stage(*(tensor.to(pictures.device) for tensor in stage)) for stage in weights()]
    total = pictures.new_zeros(len(found))
    for stage, x in zip(stages, _features((2 * pictures - 1 - shift) / scale, stages), strict=True):
        x = x / (x.norm(dim=1, keepdim=True) + 1e-10)
        difference = (x[: len(found)] - x[len(found) :]).square()  # (B, D, rows, columns)
        total = total + torch.einsum("bdrc,d->brc", difference, stage.head).mean((1, 2))
    return total.to(found.dtype)


def obstacle(size: Sequence[int]) -> str:
    """Why pictures of a size (channels, height, width) cannot have an LPIPS here; empty if they can."""
    channels, height, width = size
    if channels not in (1, 3):
        return f"LPIPS takes pictures in grey or in red, green and blue, and these have {channels} channels"
    if min(height, width) < SMALLEST:
        return (
            f"LPIPS needs pictures of at least {SMALLEST}×{SMALLEST} pixels, or AlexNet's poolings leave nothing, "
            f"and these have {height}×{width}; enlarge them"
        )
    return "" if available() else f"LPIPS has no weights here; get them with '{INSTALL}'"


def _features(x: Tensor, stages: Sequence[Stage]) -> Iterator[Tensor]:
    """AlexNet's convolutions: what each gives, (B, 3, height, width) → five times (B, D, rows, columns)."""
    first, second, third, fourth, fifth = stages
    x = F.conv2d(x, first.kernel, first.bias, stride=4, padding=2).relu()
    yield x
    x = F.max_pool2d(x, 3, stride=2)
    x = F.conv2d(x, second.kernel, second.bias, padding=2).relu()
    yield x
    x = F.max_pool2d(x, 3, stride=2)
    for stage in (third, fourth, fifth):
        x = F.conv2d(x, stage.kernel, stage.bias, padding=1).relu()
        yield x

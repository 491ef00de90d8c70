"""Splits the variance of attention logits into position and content, and contrasts mean logits between positions."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from vitpos.data.dataset import Dataset
from vitpos.errors import InputError
from vitpos.float64 import float64_device, to_float64
from vitpos.inspection._batches import image_grid
from vitpos.inspection.attention_stats import for_each_logits
from vitpos.inspection.null_models import DistanceNull
from vitpos.inspection.table_structure import NULL_MODELS, contrasts
from vitpos.models.activations import require_global_attention
from vitpos.models.base import Classifier, PatchClassifier


@dataclass(frozen=True)
class LogitVariance:
    """The variance of attention logits, split into a part due to position and a part due to image content.

    position: (depth, H), variance over pairs of positions of the mean logit over images. content: (depth, H), variance
    over images, mean over pairs. mean: (depth, H, N, N), mean logit of each pair minus the mean of its row; −∞ where a
    head masks the pair. images: number of images.
    """

    position: Tensor
    content: Tensor
    mean: Tensor
    images: int

    @property
    def position_share(self) -> Tensor:
        """Returns the fraction (depth, H) of the variance of the logits that is due to position.

        It is position / (position + content): 1 if the logits do not depend on the image, and NaN if they are constant.
        """
        return self.position / (self.position + self.content)


def logit_variance(
    model: Classifier, data: Dataset, *, shuffled: bool = False, limit: int | None = 256, seed: int = 0
) -> LogitVariance:
    """Returns the variance of the attention logits between patches on test images, split into position and content.

    This is a two-way analysis of variance over pairs of positions and images.

    Rows are centered first, since softmax ignores constants added to a row. Left out are a patch with itself, which
    would count as position, masked pairs (−∞) and pairs with prefix tokens (CLS and registers). Both components are
    unbiased: a mean over B images contains 1/B of the content variance, which is subtracted, so the position component
    can be slightly negative.

    Args:
        shuffled: permute the patches of each image. Otherwise the average content at a position counts as position, and
            the position component can be above 0 for a model without position encoding.
        limit: number of test images, sampled with ``seed``; None for all.
    """
    vit = require_global_attention(model, "a variance analysis of logits")
    moments = LogitMoments(vit, math.prod(image_grid(vit, data)))
    return moments.variance(for_each_logits(vit, data, moments.add, limit=limit, seed=seed, shuffled=shuffled))


class LogitMoments:
    """Accumulates sums over images of row-centered logits (depth, H, N, N) and of their squares, in float64."""

    def __init__(self, model: PatchClassifier, patches: int):
        shape, device = (model.geometry.depth, model.geometry.heads, patches, patches), float64_device(model.device)
        self.sums, self.squares = (torch.zeros(shape, dtype=torch.float64, device=device) for _ in range(2))
        self.finite = torch.zeros(shape, dtype=torch.bool, device=device)
        self.off_diagonal = ~torch.eye(patches, dtype=torch.bool, device=device)

    def add(self, layer: int, logits: Tensor) -> None:
        """Adds a batch of logits (B, H, N, N) of one layer to the sums."""
        logits = to_float64(logits)
        self.finite[layer] = logits[0].isfinite()  # masks depend on positions alone, so one image shows them
        centered = _center_rows(logits, self.finite[layer], self.off_diagonal)
        self.sums[layer] += centered.sum(0)
        self.squares[layer] += centered.square_().sum(0)

    def variance(self, images: int) -> LogitVariance:
        """Returns the variance due to position and due to content; ``images`` is the number of images that were added."""
        if images < 2:
            raise InputError(f"a variance over {images} image is undefined; use a limit of 2 or more")
        pairs = self.finite & self.off_diagonal
        mean = self.sums / images
        within = ((self.squares / images - mean.square()) * images / (images - 1)).clamp_min(0)
        content = _mean_over_pairs(within, pairs)
        position = _mean_over_pairs(mean.square(), pairs) - content / images
        return LogitVariance(position.cpu(), content.cpu(), mean.masked_fill(~self.finite, -torch.inf).cpu(), images)


def _center_rows(logits: Tensor, finite: Tensor, off_diagonal: Tensor) -> Tensor:
    """Subtracts from each row of logits (B, H, N, N) its mean over unmasked keys other than the query; 0 where masked.

    Args:
        finite: (H, N, N) bool, False where a head masks a pair.
        off_diagonal: (N, N) bool, False on the diagonal.
    """
    logits = logits.masked_fill(~finite, 0)
    counted = finite & off_diagonal
    means = (logits * counted).sum(-1, keepdim=True) / counted.sum(-1, keepdim=True).clamp_min(1)
    return (logits - means).masked_fill_(~finite, 0)


def _mean_over_pairs(values: Tensor, pairs: Tensor) -> Tensor:
    """Returns the mean (depth, H) of ``values`` (depth, H, N, N) over the pairs where the mask ``pairs`` is true."""
    return (values * pairs).sum((-1, -2)) / pairs.sum((-1, -2)).clamp_min(1)


def logit_contrasts(logits: Tensor, grid: tuple[int, int]) -> dict[str, list[float]]:
    """Compares the mean logit between groups of pairs of positions; returns contrast → one difference per layer.

    ``logits`` (depth, H, N, N) are mean logits or mean attention; differences are averaged over heads.

    neighbors: mean over horizontally and vertically adjacent pairs minus that over all other pairs. same_row,
    same_column: over pairs in the same row (column) minus all others. two_dimensional: over vertical neighbors, which
    are C apart in row-major order (C columns), minus non-adjacent pairs less than C apart. border, corners: within the
    border (corners) and within the center (the inner half of rows and columns), averaged, minus between the two.
    ``…_beyond_distance``, except for neighbors and two_dimensional: the same after subtracting from each pair the mean
    over all pairs at its distance.

    A position with itself is left out, as are masked pairs (−∞) of a head; NaN if no pair is left in any head.
    Contrasts for which the grid has no pairs are absent. There are no significance tests.
    """
    count = grid[0] * grid[1]
    if logits.ndim != 4 or logits.shape[2:] != (count, count):
        raise InputError(
            f"logits of shape {tuple(logits.shape)} do not fit a grid of {grid[0]}×{grid[1]}; "
            f"give (layers, heads, {count}, {count}) without prefix tokens"
        )
    logits = logits.detach().cpu().double()
    weights, null = contrasts(grid), DistanceNull(grid)
    layers = [_mean_over_heads([_contrasts(head, weights, null) for head in _merge_heads(layer)]) for layer in logits]
    return {name: [layer[name] for layer in layers] for name in layers[0]}


def _merge_heads(layer: Tensor) -> Tensor:
    """Returns the mean over heads (1, N, N) of the logits (H, N, N) of a layer; unchanged if a head masks a pair (−∞).

    It saves time: a difference of mean logits is linear, so it can be computed from the mean over heads instead of per
    head.
    """
    return layer.mean(0, keepdim=True) if layer.isfinite().all() else layer


def _contrasts(head: Tensor, weights: dict[str, Tensor], null: DistanceNull) -> dict[str, Tensor]:
    pairs = head.isfinite() & ~torch.eye(len(head), dtype=torch.bool)
    head = torch.where(pairs, head, 0)
    beyond = head - null.expected(head, pairs)
    values = {name: _weighted_difference(head, weight * pairs) for name, weight in weights.items()}
    return values | {
        f"{name}_beyond_distance": _weighted_difference(beyond, weights[name] * pairs)
        for name in NULL_MODELS
        if name in weights
    }


def _weighted_difference(values: Tensor, weight: Tensor) -> Tensor:
    """Returns the weighted mean of ``values`` where ``weight`` is positive minus that where it is negative: a scalar.

    Both arguments are (N, N). The result is NaN if no weight is positive or no weight is negative.
    """
    positive, negative = weight.clamp(min=0), weight.clamp(max=0)
    return (values * positive).sum() / positive.sum() - (values * negative).sum() / negative.sum()


def _mean_over_heads(heads: list[dict[str, Tensor]]) -> dict[str, float]:
    """Returns contrast name → mean of its values over heads, ignoring heads with NaN.

    ``heads`` has one dictionary per head: contrast name, such as ``neighbors``, → value ().
    """
    return {name: torch.stack([head[name] for head in heads]).nanmean().item() for name in heads[0]}

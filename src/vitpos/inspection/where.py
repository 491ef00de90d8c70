"""Where position lives, layer by layer, on the same axes for every encoding."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from vitpos.data.base import Dataset
from vitpos.inspection._batches import grid_seen
from vitpos.inspection.attention_stats import (
    AttentionSums,
    attention_distance,
    head_diversity,
    hear_logits,
    uniform_distance,
)
from vitpos.inspection.linear_probe import Probe, probe_places
from vitpos.inspection.logits import LogitParts, LogitSums, logit_parts
from vitpos.models.activations import on_one_grid
from vitpos.models.base import Classifier

COMPARED = 64  # images in which every two heads are compared, which takes longer than the model where heads are many


@dataclass(frozen=True)
class Where:
    """What tokens, logits and attention know of places, by layer and head."""

    probes: list[Probe]  # of the input, then of each layer
    shuffled: LogitParts  # of images whose patches change places
    pictures: LogitParts  # of images as they are
    attention: Tensor  # (depth, H, N, N)
    reach: Tensor  # (depth, H), in pixels
    uniform: float
    diversity: Tensor  # (depth,), of heads in each image, in bits, mean over the first images

    def numbers(self) -> dict[str, float | list[float]]:
        """Numbers by layer, means over heads.

        probe_r2: share of the variance of row and column, 0 (chance) to 1, that a linear regression finds in the tokens
        that enter the first layer and in those that each layer leaves, when patches are shuffled in every image;
        probe_standard_error: the standard error of it over the images that it was tested on, a fifth of all;
        probe_error: its mean absolute error, in patches; probe_chance: the error of whoever always says the middle.
        position_share: share of the variance of the logits, 0 to 1, that goes by the places of a pair, when patches are
        shuffled in every image; position_share_pictures: the same in pictures as they are, where it also has what the
        average picture shows at a place. attention_distance: in pixels; uniform_distance: of attention to all patches
        alike. head_diversity: how differently the heads of each layer look on average over images, 0 to 1 bit, if there are
        several: the Jensen–Shannon divergence between the mean attention of two heads, mean over queries and pairs of
        heads. head_diversity_of_images: the same divergence between the attention of two heads in an image, mean over
        the first 64 images; what it has more is of heads that look elsewhere by what a picture shows.
        """
        numbers: dict[str, float | list[float]] = {
            "probe_r2": [probe.r2 for probe in self.probes],
            "probe_standard_error": [probe.standard_error for probe in self.probes],
            "probe_error": [probe.error for probe in self.probes],
            "probe_chance": self.probes[0].chance,
            "position_share": self.shuffled.share.nanmean(1).tolist(),
            "position_share_pictures": self.pictures.share.nanmean(1).tolist(),
            "attention_distance": self.reach.mean(1).tolist(),
            "uniform_distance": self.uniform,
        }
        if self.attention.shape[1] > 1:
            numbers["head_diversity"] = head_diversity(self.attention).tolist()
            numbers["head_diversity_of_images"] = self.diversity.tolist()
        return numbers


def where_position_lives(model: Classifier, data: Dataset, *, limit: int | None = 500, seed: int = 0) -> Where:
    """Looks for position in the tokens, logits and attention of a model, over ``limit`` test images drawn by a seed."""
    seen = on_one_grid(model, "the place of position")
    grid, patch = grid_seen(seen, data), seen.patch
    count = math.prod(grid)
    logits, looks = LogitSums(seen, count), AttentionSums(seen, count)
    apart: list[list[Tensor]] = [[] for _ in range(seen.geometry.depth)]

    def compare(layer: int, logits: Tensor) -> None:
        some = logits[: COMPARED - sum(map(len, apart[layer]))]
        apart[layer].append(head_diversity(some.softmax(-1)).double().cpu())

    images = hear_logits(seen, data, logits.add, looks.add, compare, limit=limit, seed=seed)
    attention = (looks.total / images).cpu()
    return Where(
        probe_places(seen, data, limit=limit, seed=seed),
        logit_parts(seen, data, shuffled=True, limit=limit, seed=seed),
        logits.parts(images),
        attention,
        attention_distance(attention, grid, patch),
        uniform_distance(grid, patch),
        torch.stack([torch.cat(layer).mean() for layer in apart]),
    )

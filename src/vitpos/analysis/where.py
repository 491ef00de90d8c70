"""Where position lives, layer by layer, on the same axes for every encoding."""

from __future__ import annotations

from torch import Tensor

from vitpos.analysis.attention import attention_distance, head_diversity, mean_attention, uniform_distance
from vitpos.analysis.logits import logit_parts
from vitpos.analysis.passes import grid_seen
from vitpos.analysis.probes import probe_places
from vitpos.data.base import Dataset
from vitpos.models.base import Classifier
from vitpos.models.inside import on_one_grid


def where_position_lives(
    model: Classifier, data: Dataset, *, limit: int | None = 500, seed: int = 0
) -> dict[str, float | list[float]]:
    """Numbers by layer of a trained model, over ``limit`` test images drawn by a seed.

    probe_r2: share of the variance of row and column, 0 (chance) to 1, that a linear regression finds in the tokens that
    enter the first layer and in those that each layer leaves, when patches are shuffled in every image; probe_error: its
    mean absolute error, in patches; probe_chance: the error of whoever always says the middle.
    position_share: share of the variance of the logits, 0 to 1, that goes by the places of a pair, in each layer, mean over
    heads, when patches are shuffled in every image; position_share_pictures: the same in pictures as they are, where
    it also has what the average picture shows at a place.
    attention_distance: in each layer, mean over heads, in pixels; uniform_distance: of attention to all patches alike.
    head_diversity: how differently the heads of each layer look, 0 to 1 bit, if there are several.
    """
    seen = on_one_grid(model, "the place of position")
    probes = probe_places(seen, data, limit=limit, seed=seed)
    shuffled, whole = (
        logit_parts(seen, data, shuffled=way, limit=limit, seed=seed).share.nanmean(1) for way in (True, False)
    )
    attention = mean_attention(seen, data, limit=limit, seed=seed)
    grid, patch = grid_seen(seen, data), seen.patch
    numbers: dict[str, float | list[float]] = {
        "probe_r2": [probe.r2 for probe in probes],
        "probe_error": [probe.error for probe in probes],
        "probe_chance": probes[0].chance,
        "position_share": _numbers(shuffled),
        "position_share_pictures": _numbers(whole),
        "attention_distance": _numbers(attention_distance(attention, grid, patch).mean(1)),
        "uniform_distance": uniform_distance(grid, patch),
    }
    return numbers | ({"head_diversity": _numbers(head_diversity(attention))} if seen.geometry.heads > 1 else {})


def _numbers(values: Tensor) -> list[float]:
    return [float(value) for value in values]

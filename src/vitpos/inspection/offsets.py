"""A look at what an encoding says of offsets: biases and rotations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from vitpos.inspection.section import Drawn, Look
from vitpos.inspection.similarity import cosine_similarity
from vitpos.plotting import maps as portraits

Decomposed = Mapping[str, tuple[Tensor, Tensor]]


def look_at_offsets(
    biases: Mapping[str, Tensor], waves: Tensor | None = None, decomposed: Decomposed | None = None
) -> Look:
    """What is said of offsets: tables (H, 2R − 1, 2C − 1) by layer; the frequency plane (depth, H, pairs, 2); tables of
    vectors for rows (2R − 1, d) and columns (2C − 1, d) by layer.

    Of each table of biases, for each head, over pairs of places: deviation, in logits; by_distance, by_row, by_column: the
    share of the variance, 0 to 1, that goes by the distance, by the distance in rows alone and by that in columns alone;
    turned: the share that changes its sign when query and key change places. Offsets that a head does not see are left
    out. noise: the same parts of a table of white noise over its variance, each on average. diversity: 1 less the mean
    correlation between two heads.
    """
    numbers: dict[str, Any] = {}
    found: dict[str, Drawn] = {}
    if biases:
        numbers["biases"] = {name: bias_numbers(table) for name, table in biases.items()}
        found["biases"] = Drawn(
            portraits.maps({name: t.numpy() for name, t in biases.items()}, label="added to the logit", signed=True),
            "What each head (columns) adds to the logit at each offset, by layer (rows); grey: it does not see.",
        )
    if waves is not None:
        numbers["frequencies"] = waves.tolist()
        found["frequencies"] = Drawn(
            portraits.frequencies(waves.numpy()),
            "By how much a step turns each pair of channels, in radians per patch, a colour for each head.",
        )
    for axis, side in enumerate(("rows", "columns") if decomposed else ()):
        maps = {name: cosine_similarity(pair[axis].double())[None].numpy() for name, pair in (decomposed or {}).items()}
        found[f"decomposed-{side}"] = Drawn(
            portraits.maps(maps, label="cosine", signed=True, numbered=False),
            f"Cosine between the vectors of every two offsets in {side}, by layer.",
        )
    return Look(numbers, found)


def bias_numbers(table: Tensor) -> dict[str, Any]:
    """The numbers of one table of biases (H, 2R − 1, 2C − 1), as ``look_at_offsets`` defines them."""
    table = table.double()
    rows, columns = ((side + 1) // 2 for side in table.shape[1:])
    down, right = (torch.arange(1 - side, side, dtype=torch.float64) for side in (rows, columns))
    pairs = (rows - down.abs())[:, None] * (columns - right.abs())  # how many pairs of places have an offset
    weights = pairs * table.isfinite()  # (H, 2R − 1, 2C − 1)
    values = table.where(table.isfinite(), torch.zeros(()).double())
    centred = values - _mean(values, weights)
    variance = _mean(centred.square(), weights).flatten()
    distance = (down[:, None].square() + right.square()).flatten()
    groups = {
        "by_distance": distance.unique(return_inverse=True)[1],
        "by_row": down.abs().long()[:, None].expand(-1, len(right)).flatten(),
        "by_column": right.abs().long().expand(len(down), -1).flatten(),
    }
    whole = weights.sum((1, 2), keepdim=True).clamp_min(1)
    parts = {name: _explained(centred * weights, weights, group) for name, group in groups.items()}
    seen = weights.flip(1, 2).sign()  # whether it is seen with query and key changed
    parts["turned"] = (((values - values.flip(1, 2)) / 2).square() * weights * seen / whole).sum((1, 2))
    once = (weights / whole).square().sum((1, 2))  # the variance of a mean of noise of variance 1
    noise = {name: _of_noise(weights, group) - once for name, group in groups.items()}
    apart = (down[:, None] != 0) | (right != 0)
    noise["turned"] = (weights * seen * apart / whole).sum((1, 2)) / 2
    return {
        "deviation": variance.sqrt().tolist(),
        **{name: (part / variance.clamp_min(1e-30)).tolist() for name, part in parts.items()},
        "noise": {name: float((part / (1 - once).clamp_min(1e-30)).mean()) for name, part in noise.items()},
        "diversity": _diversity(centred, weights),
    }


def _mean(values: Tensor, weights: Tensor) -> Tensor:
    """(H, 1, 1)."""
    return (values * weights).sum((1, 2), keepdim=True) / weights.sum((1, 2), keepdim=True).clamp_min(1)


def _explained(weighted: Tensor, weights: Tensor, groups: Tensor) -> Tensor:
    """(H,): the variance of the means of groups (offsets,), from values times weights."""
    sums, sizes = _by_group(weighted, groups), _by_group(weights, groups)
    return (sums.square() / sizes.clamp_min(1)).sum(1) / sizes.sum(1).clamp_min(1)


def _of_noise(weights: Tensor, groups: Tensor) -> Tensor:
    """(H,): the mean square of the means of groups that noise of variance 1 has on average."""
    squares, sizes = _by_group(weights.square(), groups), _by_group(weights, groups)
    return (squares / sizes.clamp_min(1)).sum(1) / sizes.sum(1).clamp_min(1)


def _by_group(values: Tensor, groups: Tensor) -> Tensor:
    """(H, groups): sums."""
    return values.new_zeros(len(values), int(groups.max()) + 1).index_add_(1, groups, values.flatten(1))


def _diversity(centred: Tensor, weights: Tensor) -> float | None:
    if len(centred) < 2:
        return None
    seen = weights.amin(0)  # by all heads
    rows = (centred * seen.sqrt()).flatten(1)
    alike = cosine_similarity(rows)
    return 1 - float(alike[~torch.eye(len(alike), dtype=torch.bool)].mean())

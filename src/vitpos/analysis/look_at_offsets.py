"""A look at what an encoding says of offsets: biases and rotations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from vitpos.analysis import portraits
from vitpos.analysis.look import Drawn, Look
from vitpos.analysis.similarity import cosine_similarity
from vitpos.patches import generator_of

Decomposed = Mapping[str, tuple[Tensor, Tensor]]
NOISE = 64  # tables of white noise that give what is to be expected of one, or somewhat more


def look_at_offsets(
    biases: Mapping[str, Tensor], waves: Tensor | None = None, decomposed: Decomposed | None = None
) -> Look:
    """What is said of offsets: tables (H, 2R − 1, 2C − 1) by layer; the frequency plane (depth, H, pairs, 2); tables of
    vectors for rows (2R − 1, d) and columns (2C − 1, d) by layer.

    Of each table of biases, for each head, over pairs of places: deviation, in logits; by_distance, by_row, by_column: the
    share of the variance, 0 to 1, that goes by the distance, by the distance in rows alone and by that in columns alone;
    turned: the share that changes its sign when query and key change places. Offsets that a head does not see are left
    out. noise: the same shares of tables of white noise, on average. diversity: 1 less the mean correlation between two
    heads.
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
    centred, weights = _weighted(table)
    drawn = torch.randn(-(-NOISE // len(table)) * len(table), *table.shape[1:], generator=generator_of(0)).to(table)
    unseen = table.isfinite().logical_not().repeat(len(drawn) // len(table), 1, 1)
    noise = {
        name: float(share.mean()) for name, share in _shares(*_weighted(drawn.masked_fill(unseen, -torch.inf))).items()
    }
    deviation = _mean(centred.square(), weights).flatten().sqrt()
    shares = {name: share.tolist() for name, share in _shares(centred, weights).items()}
    return {"deviation": deviation.tolist(), **shares, "noise": noise, "diversity": _diversity(centred, weights)}


def _weighted(table: Tensor) -> tuple[Tensor, Tensor]:
    """Biases less their mean over pairs of places, zero where a head does not see, and how many pairs each stands for."""
    rows, columns = ((side + 1) // 2 for side in table.shape[1:])
    down, right = _offsets(table)
    weights = (rows - down.abs())[:, None] * (columns - right.abs()) * table.isfinite()  # (H, 2R − 1, 2C − 1)
    values = table.where(table.isfinite(), torch.zeros(()).to(table))
    return (values - _mean(values, weights)) * table.isfinite(), weights


def _offsets(table: Tensor) -> tuple[Tensor, Tensor]:
    """Down (2R − 1,) and to the right (2C − 1,)."""
    down, right = (torch.arange(side, dtype=torch.float64) - side // 2 for side in table.shape[1:])
    return down, right


def _shares(centred: Tensor, weights: Tensor) -> dict[str, Tensor]:
    """Of the variance of each head (H,), what goes by distance, row, column and direction."""
    down, right = _offsets(centred)
    distance = (down[:, None].square() + right.square()).flatten()
    groups = {
        "by_distance": distance.unique(return_inverse=True)[1],
        "by_row": down.abs().long()[:, None].expand(-1, len(right)).flatten(),
        "by_column": right.abs().long().expand(len(down), -1).flatten(),
    }
    parts = {name: _explained(centred, weights, group) for name, group in groups.items()}
    odd = (centred - centred.flip(1, 2)) / 2
    parts["turned"] = _mean(odd.square(), weights * weights.flip(1, 2).sign()).flatten()
    variance = _mean(centred.square(), weights).flatten().clamp_min(1e-30)
    return {name: part / variance for name, part in parts.items()}


def _mean(values: Tensor, weights: Tensor) -> Tensor:
    """(H, 1, 1)."""
    return (values * weights).sum((1, 2), keepdim=True) / weights.sum((1, 2), keepdim=True).clamp_min(1)


def _explained(centred: Tensor, weights: Tensor, groups: Tensor) -> Tensor:
    """(H,): the variance of the means of groups (offsets,)."""
    count = int(groups.max()) + 1
    sums, sizes = (x.new_zeros(len(x), count).index_add_(1, groups, x.flatten(1)) for x in (centred * weights, weights))
    return (sums.square() / sizes.clamp_min(1)).sum(1) / sizes.sum(1).clamp_min(1)


def _diversity(centred: Tensor, weights: Tensor) -> float | None:
    if len(centred) < 2:
        return None
    seen = weights.amin(0)  # by all heads
    rows = (centred * seen.sqrt()).flatten(1)
    alike = cosine_similarity(rows)
    return 1 - float(alike[~torch.eye(len(alike), dtype=torch.bool)].mean())

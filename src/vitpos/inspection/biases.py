"""What logits or attention between places prefer: the statements about position tables, where there is no table."""

from __future__ import annotations

import torch
from torch import Tensor

from vitpos.errors import UserError
from vitpos.inspection.contrasts import contrasts
from vitpos.inspection.null_models import DistanceLaw
from vitpos.inspection.table_structure import BEYOND


def bias_effects(bias: Tensor, grid: tuple[int, int]) -> dict[str, list[float]]:
    """Of mean logits or mean attention (depth, H, N, N) among the places of a grid: differences by layer, mean over heads.

    nearby: mean over pairs of horizontal and vertical neighbours less that over all other pairs, in the units given.
    same_row, same_column: over pairs of a row (column) less all others. grid: over vertical neighbours less pairs that are
    nearer to each other in the list of places and no neighbours. rim, corners: within the rim (the corners) and within
    the centre, in the mean, less between the two. ``…_beyond_distance``: the same of what each pair has more than pairs as
    far apart have in the mean, as :class:`DistanceLaw` smooths it. A place with itself is no pair, and a pair that a head
    does not see (−∞) is none of its pairs; where nothing is left to compare, in any head, the number is NaN. Statements
    that a grid has no places for are left out. These are descriptions: there is no chance to compare them with.
    """
    count = grid[0] * grid[1]
    if bias.ndim != 4 or bias.shape[2:] != (count, count):
        raise UserError(
            f"biases of {tuple(bias.shape)} are not (layers, heads, {count}, {count}) as a grid of {grid[0]}×{grid[1]} "
            "has; give those among patches alone, and their grid"
        )
    bias = bias.detach().cpu().double()
    weights, law = contrasts(grid), DistanceLaw(grid)
    layers = [_averaged([_effects(head, weights, law) for head in _heads(layer)]) for layer in bias]
    return {name: [layer[name] for layer in layers] for name in layers[0]}


def _heads(layer: Tensor) -> Tensor:
    """(H, N, N), or (1, N, N): differences of means are linear, so heads that see everything are one."""
    return layer.mean(0, keepdim=True) if layer.isfinite().all() else layer


def _effects(head: Tensor, weights: dict[str, Tensor], law: DistanceLaw) -> dict[str, Tensor]:
    seen = head.isfinite() & ~torch.eye(len(head), dtype=torch.bool)
    head = torch.where(seen, head, 0)
    beyond = head - law.owed(head, seen)
    found = {name: _difference(head, weight * seen) for name, weight in weights.items()}
    return found | {
        f"{name}_beyond_distance": _difference(beyond, weights[name] * seen) for name in BEYOND if name in weights
    }


def _difference(values: Tensor, weight: Tensor) -> Tensor:
    """The mean over pairs of positive weight less that over pairs of negative weight; NaN if there are none of one."""
    near, far = weight.clamp(min=0), weight.clamp(max=0)
    return (values * near).sum() / near.sum() - (values * far).sum() / far.sum()


def _averaged(heads: list[dict[str, Tensor]]) -> dict[str, float]:
    """The mean over the heads that have a number."""
    return {name: torch.stack([head[name] for head in heads]).nanmean().item() for name in heads[0]}

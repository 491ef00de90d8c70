"""Which pairs of places a statement compares: (N, N) weights, by which the sum of cosines is a difference of means."""

from __future__ import annotations

import torch
from torch import Tensor

from vitpos.inspection.table_stats import coordinates


def contrasts(grid: tuple[int, int]) -> dict[str, Tensor]:
    """For each statement that a grid has pairs for, symmetric weights (N, N) that sum to 0, with none on the diagonal."""
    rows, columns = grid
    place = torch.arange(rows * columns)
    row, column = place // columns, place % columns
    down, along, in_list = ((x[:, None] - x).abs() for x in (row, column, place))
    other, neighbours = in_list > 0, down + along == 1
    asked = {
        "nearby": (neighbours, other & ~neighbours),
        "same_row": (other & (down == 0), down > 0),
        "same_column": (other & (along == 0), along > 0),
        "grid": ((down == 1) & (along == 0), other & ~neighbours & (in_list < columns)),
    }
    found = {name: _mean(near) - _mean(far) for name, (near, far) in asked.items() if near.any() and far.any()}
    rim, corners, centre = regions(grid)
    if centre.any():
        for name, outer in (("rim", rim), ("corners", corners)):
            within = [_between(part, part) for part in (outer, centre) if part.sum() > 1]
            found[name] = torch.stack(within).mean(0) - _between(outer, centre)
    return found


def regions(grid: tuple[int, int]) -> tuple[Tensor, Tensor, Tensor]:
    """(N,) each: the rim, its corners, and the centre, which is the inner half of rows and columns and off the rim."""
    places, sides = coordinates(grid), torch.tensor(grid, dtype=torch.float64)
    at_end = (places == 0) | (places == sides - 1)
    inner = (places - (sides - 1) / 2).abs() < sides / 4
    return at_end.any(1), at_end.all(1), inner.all(1) & ~at_end.any(1)


def _between(first: Tensor, second: Tensor) -> Tensor:
    """Weights of the mean over pairs of different places, one of each region."""
    pairs = (first[:, None] & second) | (second[:, None] & first)
    return _mean(pairs & ~torch.eye(len(first), dtype=torch.bool))


def _mean(pairs: Tensor) -> Tensor:
    return pairs.double() / pairs.sum()

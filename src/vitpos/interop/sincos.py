"""Fixed sines and cosines that are stored as if they were a learned table: recognised by comparing with the formula."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from vitpos.interop.grids import Grid

TEMPERATURE = 10000.0
NEAR = 0.01  # the largest difference that is rounding (bfloat16's is .004) and no training
SAMPLE = 32  # places that are compared before all of them are
LAYOUTS = {  # how waves (N, axis, sin or cos, K) are laid out in a vector: the order of their axes
    "sines and cosines of one axis, then of the other": (0, 1, 2, 3),
    "sines of both axes, then cosines": (0, 2, 1, 3),
    "sine and cosine in turn, one axis after the other": (0, 1, 3, 2),
}
LINES = {
    "sine and cosine in turn": (0, 2, 1),
    "sines, then cosines": (0, 1, 2),
}  # the same for waves (N, sin or cos, K)


@dataclass(frozen=True)
class Waves:
    """The formula that a stored table is."""

    grid: Grid | None  # None for waves of the index, which tell no grid
    axes: str  # in words: which axis the vectors begin with, and how they are laid out


def find_waves(table: Tensor, grids: Iterable[Grid]) -> Waves | None:
    """The formula that the (N, D) table is: 2-D on one of the grids, or 1-D of the index; None where it is none.

    ω_k = 10000^(−k/K), as in MoCo-v3 and MAE, or 10000^(−k/(K − 1)), as in big_vision. MoCo-v3 and timm begin with the
    row, MAE and big_vision with the column.
    """
    table = table.double()
    places = torch.arange(len(table))
    some = torch.linspace(0, len(table) - 1, min(SAMPLE, len(table))).round().long()
    for found, at in _formulas(table.shape[1], grids):
        if all((at(part) - table[part]).abs().max() < NEAR for part in (some, places)):
            return found
    return None


def _formulas(dim: int, grids: Iterable[Grid]) -> Iterator[tuple[Waves, Callable[[Tensor], Tensor]]]:
    """Every formula in use for vectors of this width, and the function that gives its vectors at given places."""
    for grid in grids if dim % 4 == 0 else ():
        for first, axes in (("rows", (0, 1)), ("columns", (1, 0))):
            for layout, order in LAYOUTS.items():
                for last in (dim // 4, max(dim // 4 - 1, 1)):
                    said = f"vectors begin with {first}: {layout}"
                    yield Waves(grid, said), partial(_plane, grid=grid, axes=axes, order=order, dim=dim, last=last)
    for layout, order_of_line in LINES.items() if dim % 2 == 0 else ():
        for start in (0, 1):
            said = f"waves of the index alone: {layout}"
            yield Waves(None, said), partial(_line, start=start, order=order_of_line, dim=dim)


def _plane(places: Tensor, *, grid: Grid, axes: tuple[int, int], order: tuple[int, ...], dim: int, last: int) -> Tensor:
    """(N,) cells of the grid → (N, D)."""
    coords = torch.stack([places // grid[1], places % grid[1]], 1)[:, axes]
    return _waves(coords, dim // 4, last).permute(order).flatten(1)


def _line(places: Tensor, *, start: int, order: tuple[int, ...], dim: int) -> Tensor:
    """(N,) indices → (N, D); where CLS was counted too, they start at one."""
    return _waves(places + start, dim // 2, dim // 2).permute(order).flatten(1)


def _waves(coords: Tensor, count: int, last: int) -> Tensor:
    """(N, …) → (N, …, sin or cos, K)."""
    angles = coords[..., None].double() * TEMPERATURE ** (-torch.arange(count, dtype=torch.float64) / last)
    return torch.stack([angles.sin(), angles.cos()], -2)

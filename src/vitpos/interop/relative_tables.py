"""Position by offset in a checkpoint: tables of biases and decomposed tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from vitpos.errors import UserError
from vitpos.interop.grids import Clue, Grid, clues, factorisations, listed, of_index, of_window, written
from vitpos.interop.naming import Trunk
from vitpos.interop.sanitize import shown

TABLE = "relative_position_bias_table"
INDEX = "relative_position_index"
COORDINATES = "relative_coords_table"
LARGEST = 1e6  # more than any position has ever been trained to
CLS_ROWS = 3  # BEiT's rows after the offsets: CLS to a place, a place to CLS, CLS to itself


def windows(trunk: Trunk, about: Mapping[str, Any]) -> list[Clue]:
    """Grids or windows that the tensors of relative encodings can only be made for."""
    found: list[tuple[Grid | None, str]] = [(of_index(index), name) for name, index in trunk.ending(INDEX).items()]
    for name, tensor in trunk.ending(COORDINATES).items():
        sides = tensor.shape[-3:-1]
        found.append((half(sides), name))
    for name, rows in trunk.ending("rel_pos_h").items():
        columns = trunk.tensors.get(name.removesuffix("h") + "w")
        if columns is not None and rows.ndim and columns.ndim:
            found.append((half((len(rows), len(columns))), name))
    configured = of_window(about)
    return list(dict.fromkeys([*clues(found), *([configured] if configured else [])]))


def largest(apart: Mapping[str, tuple[Tensor, Tensor]]) -> Clue | None:
    """The grid of the decomposed tables with the most offsets, which are those of a whole picture, not of a window."""
    grids = clues((half((len(rows), len(columns))), name) for name, (rows, columns) in apart.items())
    return max(grids, key=lambda clue: clue.grid[0] * clue.grid[1], default=None)


def laid_out(relative: Mapping[str, Tensor], known: Sequence[Clue]) -> Clue | None:
    """The grid of the biases (2R−1, 2C−1, H) with the most offsets, and what said so."""
    if not relative:
        return None
    name = max(relative, key=lambda name: relative[name][..., 0].numel())
    grid = half(relative[name].shape[:2])
    assert grid is not None
    return next((clue for clue in known if clue.grid == grid), Clue(grid, shown(name)))


def bias_tables(
    trunk: Trunk, known: Sequence[Clue], asked: Grid | None, *, strict: bool, path: str
) -> dict[str, Tensor]:
    """Tables (2R−1, 2C−1, H) by name, in the order of their layers.

    Each takes the grid that was ``asked`` for, or that its own index or another clue tells, or the only window within
    these that fits, as windows shrink to the grid of a late stage. With ``strict`` one that nothing fits is an error,
    otherwise it is left out.
    """
    found = {}
    for name, tensor in trunk.ending(TABLE).items():
        what = f"{path}: {shown(name)}"
        if tensor.ndim == 3:  # (H, 2R−1, 2C−1)
            if half(tensor.shape[1:]) is None or not tensor.numel():
                raise UserError(
                    f"{what} is {shown(tuple(tensor.shape))}, no table of (heads, 2R-1, 2C-1); is the file damaged?"
                )
            found[name] = numbers(tensor, what).permute(1, 2, 0)
            continue
        rows = len(tensor) - CLS_ROWS * (len(tensor) % 2 == 0) if tensor.ndim == 2 else 0  # (2R−1)(2C−1) is odd
        if rows < 1 or not tensor.numel():
            raise UserError(
                f"{what} is {shown(tuple(tensor.shape))}, no table of (offsets, heads); is the file damaged?"
            )
        index = of_index(trunk.tensors[own]) if (own := name.replace(TABLE, INDEX)) in trunk.tensors else None
        grid = _window(what, rows, [*clues([(index, own)]), *known], asked, strict=strict and not found)
        if grid is not None:
            found[name] = numbers(tensor[:rows], what).unflatten(0, _sides(grid))
    return found


def _window(what: str, rows: int, known: Sequence[Clue], asked: Grid | None, *, strict: bool) -> Grid | None:
    """The window whose offsets are so many."""
    fitting = [grid for sides in factorisations(rows) if (grid := half(sides)) is not None]
    for grid in [asked] if asked else [clue.grid for clue in known]:
        within = [other for other in fitting if other[0] <= grid[0] and other[1] <= grid[1]]
        if grid in fitting:
            return grid
        if len(within) == 1 and not strict:
            return within[0]
    if not strict:
        return None
    if asked:
        raise UserError(
            f"{what} does not fit --grid {written(asked)}: it has {rows} offsets, of {listed(fitting)}; give one of these"
        )
    raise UserError(
        f"{what} has {rows} offsets, and the file does not say of which grid: {listed(fitting)}; give --grid RxC"
    )


def decomposed(trunk: Trunk, path: str) -> dict[str, tuple[Tensor, Tensor]]:
    """Tables (2R−1, d) of rows and (2C−1, d) of columns by name (SAM, ViTDet, MViT-v2)."""
    found = {}
    for name, rows in trunk.ending("rel_pos_h").items():
        other = name.removesuffix("h") + "w"
        columns = trunk.tensors.get(other)
        if columns is None or not _pairs(rows, columns):
            raise UserError(
                f"{path}: {shown(name)} and {shown(other)} are no tables of (2R-1, d) and (2C-1, d); is the file damaged?"
            )
        found[name.removesuffix("_h")] = (
            numbers(rows, f"{path}: {shown(name)}"),
            numbers(columns, f"{path}: {shown(other)}"),
        )
    return found


def _pairs(rows: Tensor, columns: Tensor) -> bool:
    """Whether two tables have vectors that belong together."""
    return rows.ndim == columns.ndim == 2 and rows.shape[1] == columns.shape[1] and min(*rows.shape, len(columns)) > 0


def numbers(tensor: Tensor, what: str) -> Tensor:
    """The tensor in float32 and on its own; one that is not all numbers of a sensible size is refused."""
    if not tensor.is_floating_point():
        raise UserError(
            f"{what} holds {str(tensor.dtype).removeprefix('torch.')} values; give weights in floating point"
        )
    copy = tensor.to(torch.float32, copy=True)
    bad = int((~copy.isfinite()).sum())
    if bad:
        raise UserError(
            f"{what} has {bad:,} of {copy.numel():,} values that are NaN or infinite; the training diverged?"
        )
    most = float(copy.abs().max()) if copy.numel() else 0.0
    if most > LARGEST:
        raise UserError(f"{what} has values up to {most:.2g}, which no training gives; is the file damaged?")
    return copy


def _sides(grid: Grid) -> tuple[int, int]:
    """Offsets along both axes: (2R−1, 2C−1)."""
    return 2 * grid[0] - 1, 2 * grid[1] - 1


def half(sides: Sequence[int]) -> Grid | None:
    """The grid with so many offsets along its axes."""
    if len(sides) != 2 or any(side % 2 == 0 for side in sides):
        return None
    return (sides[0] + 1) // 2, (sides[1] + 1) // 2

"""Determines the grid (rows, columns) of the positions in a checkpoint; a square grid is never assumed silently.

A number of positions alone allows every factorization. The grid comes from the caller, from a configuration, or from
tensors that fit one grid only. A file that has none of these and a square number of positions is read as a square, and
``read_checkpoint`` warns; otherwise an error lists the factorizations and the caller must choose.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vitpos.errors import InputError
from vitpos.printable import sanitize

Grid = tuple[int, int]  # rows, columns
MAX_LISTED = 8  # candidates that an error lists
ASSUMED = "assumed to be square"  # source of a grid that the file does not state
MAX_IMAGE_SIDE = 1 << 16  # pixels; larger configured sizes are ignored


@dataclass(frozen=True)
class GridHint:
    """A possible ``grid`` (rows, columns), and as ``source`` the tensor or configuration entry that implies it."""

    grid: Grid
    source: str


def format_grid(grid: Grid) -> str:
    """Formats rows and columns as typed on the command line: ``14x14``."""
    return f"{grid[0]}x{grid[1]}"


def format_grids(grids: Sequence[Grid]) -> str:
    """Formats the first 8 grids, separated by commas: ``14x14, 7x28, …``."""
    return ", ".join([*map(format_grid, grids[:MAX_LISTED]), *(["…"] if len(grids) > MAX_LISTED else [])])


def factorizations(count: int) -> list[Grid]:
    """Returns all grids of ``count`` positions, the squarest first: 2×3, 3×2, 1×6, 6×1 for 6."""
    low = [side for side in range(1, math.isqrt(max(count, 0)) + 1) if count % side == 0]
    return [grid for side in reversed(low) for grid in dict.fromkeys([(side, count // side), (count // side, side)])]


def choose_grid(
    name: str, counts: Mapping[int, str], hints: Sequence[GridHint], requested: Grid | None
) -> tuple[Grid, int, str]:
    """Returns the grid of a position table, its number of positions, and what determined the grid (the source).

    Without a hint, a square number of positions is read as a square grid, and the source begins with ``ASSUMED``. Of
    several possible numbers, only those that leave rows for prefix tokens (CLS, registers) are considered.

    Args:
        name: name of the table in error messages.
        counts: possible numbers of positions, each with an explanation such as " after 1 row for CLS".
        hints: used in order; a hint applies if its number of positions is in ``counts``.
        requested: the caller's grid, which must fit; a hint that disagrees is mentioned in the source.
    """
    if requested is not None:
        if math.prod(requested) in counts:
            other = [hint for hint in hints if hint.grid != requested and math.prod(hint.grid) in counts]
            note = f", although {other[0].source} implies {format_grid(other[0].grid)}" if other else ""
            return requested, math.prod(requested), f"as requested{note}"
        raise InputError(
            f"{name} does not fit grid {format_grid(requested)}: it has {_candidates(counts)}; give one of these"
        )
    for hint in hints:
        if math.prod(hint.grid) in counts:
            return hint.grid, math.prod(hint.grid), hint.source
    likely = [count for count in counts if counts[count] or len(counts) == 1]  # prefix tokens usually have rows
    squares = [count for count in likely if math.isqrt(count) ** 2 == count > 1]
    if len(squares) == 1 and not hints:
        side = math.isqrt(squares[0])
        return (side, side), squares[0], f"{ASSUMED}: {squares[0]} positions{counts[squares[0]]}"
    mismatch = "".join(f"; {hint.source} implies {format_grid(hint.grid)}, which does not fit" for hint in hints[:1])
    raise InputError(f"{name} has {_candidates(counts)}, and the file does not state its grid{mismatch}; give grid RxC")


def _candidates(counts: Mapping[int, str]) -> str:
    """Returns the possible numbers of positions with their grids as text for an error message.

    ``counts`` is number → explanation, such as " after 1 row for CLS". Numbers that only allow a single row or column
    (primes) are left out unless all do.
    """
    grids = {count: factorizations(count) for count in counts}
    planes = {count: found for count, found in grids.items() if len(found) > 2 or len(found) == 1} or grids
    return " or ".join(f"{count} positions{counts[count]} ({format_grids(found)})" for count, found in planes.items())


def grid_from_config(config: Mapping[str, Any], patch: Grid | None) -> GridHint | None:
    """Returns the grid implied by the image size in a configuration and the patch size; None if one of them is missing.

    ``patch`` is the patch size (height, width); None for that of the configuration.
    """
    image = _size(config, "image_size", "img_size", "input_size")
    patch = patch or _size(config, "patch_size")
    if image is None or patch is None:
        return None
    grid = (image[0] // patch[0], image[1] // patch[1])
    return GridHint(grid, f"image {format_grid(image)} with patches {format_grid(patch)}") if min(grid) > 0 else None


def window_from_config(config: Mapping[str, Any]) -> GridHint | None:
    """Returns the attention window (rows, columns), ``window_size`` of a Swin configuration, as a hint; None if absent."""
    window = _size(config, "window_size")
    return GridHint(window, "the configured window") if window is not None else None


def _size(config: Mapping[str, Any], *names: str) -> Grid | None:
    """Returns the size (rows, columns) stored under one of the ``names`` in a configuration; None if absent.

    It is looked up at the top level and in ``model_args``, ``vision_config`` and ``pretrained_cfg``.
    """
    nested = [config.get(key) for key in ("model_args", "vision_config", "pretrained_cfg")]
    for level in [config, *(value for value in nested if isinstance(value, Mapping))]:
        for name in names:
            if (size := _pair(level.get(name))) is not None:
                return size
    return None


def _pair(value: Any) -> Grid | None:
    """Parses a size to (rows, columns): 224, "224", [224, 160] or [channels, 224, 160]; None for anything else."""
    if isinstance(value, str) and value.isdecimal() and len(value) < 7:
        value = int(value)
    sides = value[-2:] if isinstance(value, (list, tuple)) and len(value) in (2, 3) else [value, value]
    return (sides[0], sides[1]) if all(type(side) is int and 0 < side < MAX_IMAGE_SIDE for side in sides) else None


def grid_from_relative_index(index: Tensor) -> Grid | None:
    """Returns the grid of a stored ``relative_position_index`` (N, N) of Swin, or of BEiT with CLS first; else None.

    The entry of positions a and b is (Δrow + R − 1)·(2C − 1) + Δcolumn + C − 1, so its first row decreases by one along
    the first row of the grid. A grid with one row has the same index as one with one column, and gives None.
    """
    if index.ndim != 2 or index.shape[0] != index.shape[1] or index.is_floating_point() or index.is_complex():
        return None
    for prefix in (0, 1):
        patches = index[prefix:, prefix:].long()
        count = len(patches)
        if count < 2:
            continue
        steps = (patches[0, :-1] - patches[0, 1:]).tolist()
        columns = next((number + 1 for number, step in enumerate(steps) if step != 1), count)
        if count % columns == 0 and 1 < columns < count:
            grid = (count // columns, columns)
            if torch.equal(patches, _relative_index(grid)):
                return grid
    return None


def _relative_index(grid: Grid) -> Tensor:
    """Returns the index (N, N) of each pair of positions into a flat table of (2R−1)(2C−1) offsets, as in Swin."""
    rows, columns = torch.meshgrid(torch.arange(grid[0]), torch.arange(grid[1]), indexing="ij")
    row, column = (side.flatten()[:, None] - side.flatten() for side in (rows, columns))
    return (row + grid[0] - 1) * (2 * grid[1] - 1) + column + grid[1] - 1


def grid_from_coordinates(row: Tensor, column: Tensor) -> Grid | None:
    """Returns the grid whose N positions in row-major order have the coordinates ``row`` (N,) and ``column`` (N,).

    None if there is no such grid.
    """
    if row.ndim != 1 or row.shape != column.shape or not len(row) or not _all_finite(row, column):
        return None
    grid = (int(row.max()) + 1, int(column.max()) + 1)
    index = torch.arange(len(row))
    if math.prod(grid) != len(row):
        return None
    fits = torch.equal(row.long(), index // grid[1]) and torch.equal(column.long(), index % grid[1])
    return grid if fits else None


def grid_from_axial_angles(cosines: Tensor) -> Grid | None:
    """Returns the grid of a stored buffer of axial rotary cosines (N, d), one row per position and d channels.

    The first half of the channels must depend on the row alone, the second half on the column alone; otherwise None.
    """
    if cosines.ndim != 2 or len(cosines) < 2 or cosines.shape[1] < 2 or not _all_finite(cosines):
        return None
    row, column = cosines.float().chunk(2, 1)
    changed = (row != row[0]).any(1).nonzero()
    columns = int(changed[0]) if len(changed) else len(row)
    if len(row) % columns:
        return None
    by_row, by_column = row.unflatten(0, (-1, columns)), column.unflatten(0, (-1, columns))
    fits = (by_row == by_row[:, :1]).all() and (by_column == by_column[:1]).all()
    return (len(row) // columns, columns) if fits and columns > 1 else None


def _all_finite(*tensors: Tensor) -> bool:
    return all(not tensor.is_complex() and bool(tensor.isfinite().all()) for tensor in tensors)


def grid_hints(grids: Iterable[tuple[Grid | None, str]]) -> list[GridHint]:
    """Returns a `GridHint` per pair (grid, tensor name); skips pairs whose grid is None."""
    return [GridHint(grid, sanitize(source)) for grid, source in grids if grid is not None]

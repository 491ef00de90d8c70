"""The grid of a checkpoint: what says it, and never a square root.

A count of places alone allows every factorisation. The grid comes from the caller, from a configuration, or from tensors
that can only be made for one grid; otherwise the factorisations are listed and the caller must choose.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vitpos.errors import UserError
from vitpos.interop.sanitize import shown

Grid = tuple[int, int]
LISTED = 8  # candidates that an error names
LARGEST = 1 << 16  # a side of a picture that nobody trained on


@dataclass(frozen=True)
class Clue:
    """A grid, and what says so."""

    grid: Grid
    source: str


def written(grid: Grid) -> str:
    """A grid as people type it: 14x14."""
    return f"{grid[0]}x{grid[1]}"


def factorisations(count: int) -> list[Grid]:
    """All grids of so many places, the most square first and of two alike the wider first."""
    low = [side for side in range(1, math.isqrt(max(count, 0)) + 1) if count % side == 0]
    return [grid for side in reversed(low) for grid in dict.fromkeys([(side, count // side), (count // side, side)])]


def settle(
    what: str, counts: Mapping[int, str], clues: Sequence[Clue], asked: Grid | None, *, sides: str = "places"
) -> tuple[Grid, int, str]:
    """The grid of a table, the count that it uses and what said so.

    ``counts`` are the numbers of places that the table may have, each with its reason in words (" after 1 row for CLS"):
    a clue counts when one of them is its number of places. What the caller ``asked`` for must fit, and a clue that says
    otherwise is named with it.
    """
    if asked is not None:
        if math.prod(asked) in counts:
            other = [clue for clue in clues if clue.grid != asked and math.prod(clue.grid) in counts]
            though = f", though {other[0].source} says {written(other[0].grid)}" if other else ""
            return asked, math.prod(asked), f"as asked{though}"
        raise UserError(
            f"{what} does not fit --grid {written(asked)}: it has {_candidates(counts, sides)}; give one of these"
        )
    for clue in clues:
        if math.prod(clue.grid) in counts:
            return clue.grid, math.prod(clue.grid), clue.source
    against = "".join(f"; {clue.source} says {written(clue.grid)}, which does not fit" for clue in clues[:1])
    raise UserError(
        f"{what} has {_candidates(counts, sides)}, and the file does not say in which grid{against}; give --grid RxC"
    )


def _candidates(counts: Mapping[int, str], sides: str) -> str:
    """The grids of each count in words; counts that could only be a single line are left out where others are not."""
    grids = {count: factorisations(count) for count in counts}
    planes = {count: found for count, found in grids.items() if len(found) > 2 or len(found) == 1} or grids
    return " or ".join(f"{count} {sides}{counts[count]} ({listed(found)})" for count, found in planes.items())


def listed(grids: Sequence[Grid]) -> str:
    """The first grids as people type them."""
    return ", ".join([*map(written, grids[:LISTED]), *(["…"] if len(grids) > LISTED else [])])


def of_image(about: Mapping[str, Any], patch: Grid | None) -> Clue | None:
    """The grid that a configuration says by the sizes of image and patch."""
    image = _size(about, "image_size", "img_size", "input_size")
    patch = patch or _size(about, "patch_size")
    if image is None or patch is None:
        return None
    grid = (image[0] // patch[0], image[1] // patch[1])
    return Clue(grid, f"an image of {written(image)} in patches of {written(patch)}") if min(grid) > 0 else None


def of_window(about: Mapping[str, Any]) -> Clue | None:
    """The window that a configuration says."""
    window = _size(about, "window_size")
    return Clue(window, "the configured window") if window is not None else None


def _size(about: Mapping[str, Any], *names: str) -> Grid | None:
    """A size under one of the names, here or in what a configuration nests: timm's arguments, CLIP's vision part."""
    inner = [about.get(key) for key in ("model_args", "vision_config", "pretrained_cfg")]
    for level in [about, *(value for value in inner if isinstance(value, Mapping))]:
        for name in names:
            if (size := _pair(level.get(name))) is not None:
                return size
    return None


def _pair(value: Any) -> Grid | None:
    """Rows and columns of 224, [224, 160] or channels before them; metadata has them as text."""
    if isinstance(value, str) and value.isdecimal() and len(value) < 7:
        value = int(value)
    sides = value[-2:] if isinstance(value, (list, tuple)) and len(value) in (2, 3) else [value, value]
    return (sides[0], sides[1]) if all(type(side) is int and 0 < side < LARGEST for side in sides) else None


def of_index(index: Tensor) -> Grid | None:
    """The grid for which a ``relative_position_index`` was made: Swin's (N, N), or BEiT's with CLS in front.

    Between places a and b it is (Δrow + R − 1)·(2C − 1) + Δcolumn + C − 1, so that the first row of it steps down by one
    along the first row of the grid. One line of places has the same index standing and lying; it says nothing.
    """
    if index.ndim != 2 or index.shape[0] != index.shape[1] or index.is_floating_point() or index.is_complex():
        return None
    for skip in (0, 1):
        places = index[skip:, skip:].long()
        count = len(places)
        if count < 2:
            continue
        steps = (places[0, :-1] - places[0, 1:]).tolist()
        columns = next((number + 1 for number, step in enumerate(steps) if step != 1), count)
        if count % columns == 0 and 1 < columns < count:
            grid = (count // columns, columns)
            if torch.equal(places, _index(grid)):
                return grid
    return None


def _index(grid: Grid) -> Tensor:
    """(N, N), which entry of a (2R−1)(2C−1) table a pair of places reads."""
    rows, columns = torch.meshgrid(torch.arange(grid[0]), torch.arange(grid[1]), indexing="ij")
    row, column = (side.flatten()[:, None] - side.flatten() for side in (rows, columns))
    return (row + grid[0] - 1) * (2 * grid[1] - 1) + column + grid[1] - 1


def of_coordinates(row: Tensor, column: Tensor) -> Grid | None:
    """The grid whose places have these rows and columns, in row-major order."""
    if row.ndim != 1 or row.shape != column.shape or not len(row) or not _finite(row, column):
        return None
    grid = (int(row.max()) + 1, int(column.max()) + 1)
    places = torch.arange(len(row))
    if math.prod(grid) != len(row):
        return None
    fits = torch.equal(row.long(), places // grid[1]) and torch.equal(column.long(), places % grid[1])
    return grid if fits else None


def of_axial_angles(cosines: Tensor) -> Grid | None:
    """The grid of an axial rotary buffer (N, d) whose first half turns with the row and second with the column."""
    if cosines.ndim != 2 or len(cosines) < 2 or cosines.shape[1] < 2 or not _finite(cosines):
        return None
    row, column = cosines.float().chunk(2, 1)
    moved = (row != row[0]).any(1).nonzero()
    columns = int(moved[0]) if len(moved) else len(row)
    if len(row) % columns:
        return None
    by_row, by_column = row.unflatten(0, (-1, columns)), column.unflatten(0, (-1, columns))
    fits = (by_row == by_row[:, :1]).all() and (by_column == by_column[:1]).all()
    return (len(row) // columns, columns) if fits and columns > 1 else None


def _finite(*tensors: Tensor) -> bool:
    return all(not tensor.is_complex() and bool(tensor.isfinite().all()) for tensor in tensors)


def clues(found: Iterable[tuple[Grid | None, str]]) -> list[Clue]:
    """The grids that there are, with their sources."""
    return [Clue(grid, shown(source)) for grid, source in found if grid is not None]

"""The table that a checkpoint adds to its tokens: its rows for tokens in front, its places, its grid."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from torch import Tensor

from vitpos.errors import UserError
from vitpos.interop.grids import Clue, Grid, factorisations, settle, written
from vitpos.interop.naming import SEATED, TABLES, Trunk
from vitpos.interop.relative_tables import numbers
from vitpos.interop.sanitize import shown
from vitpos.interop.sincos import Waves, find_waves

MOST = 1 << 28  # numbers of a sum of rows and columns, which a small file can make larger than any memory
ROW_MAJOR = "tokens row by row"  # a convolution's picture flattened, in all namings that have one


@dataclass(frozen=True)
class Added:
    """A table of position vectors on its grid."""

    table: Tensor  # (R, C, D)
    prefix: Tensor  # (P, D)
    source: str  # what said the grid
    encoding: str  # ours of the same kind
    said: str
    axes: str

    @property
    def grid(self) -> Grid:
        """Rows, columns."""
        return self.table.shape[0], self.table.shape[1]


def find_added(trunk: Trunk, known: Sequence[Clue], asked: Grid | None, dim: int | None, path: str) -> Added | None:
    """The table of absolute positions; None where the checkpoint has none."""
    sides = [trunk.first(within + side for within in ("embeds.", "")) for side in ("pos_embed_y", "pos_embed_x")]
    if sides[0] is not None and sides[1] is not None:
        return _factorised(trunk, sides[0], sides[1], asked, path)
    name = trunk.first(TABLES)
    if name is None:
        return None
    what, tensor = f"{path}: {shown(trunk.root)}{name}", _vectors_last(trunk.tensors[name], dim)
    if tensor.ndim not in (2, 3) or not tensor.numel():
        shape = shown(tuple(trunk.tensors[name].shape))
        raise UserError(f"{what} is {shape}, no table of position vectors (1, places, width); is the file damaged?")
    if dim is not None and tensor.shape[-1] != dim:
        raise UserError(f"{what} has vectors of {tensor.shape[-1]}, and patches become {dim}; is the file damaged?")
    if tensor.ndim == 3:
        return _on_grid(numbers(tensor, what), asked, what)
    return _flat(trunk, numbers(tensor, what), known, asked, what)


def _vectors_last(tensor: Tensor, dim: int | None) -> Tensor:
    """(N, D) or (R, C, D), from those with a batch of one in front and from PiT's (1, D, R, C)."""
    if tensor.ndim in (3, 4) and len(tensor) == 1:
        tensor = tensor[0]
    first = tensor.ndim == 3 and tensor.shape[0] == dim and tensor.shape[-1] != dim
    return tensor.permute(1, 2, 0) if first else tensor


def _on_grid(table: Tensor, asked: Grid | None, what: str) -> Added:
    """A table that is stored on its grid."""
    grid = (table.shape[0], table.shape[1])
    if asked not in (None, grid):
        raise UserError(f"{what} is stored as {written(grid)}, not --grid {written(asked)}; leave --grid away")
    waves = find_waves(table.flatten(0, 1), [grid])
    return _added(table, table.new_zeros(0, table.shape[-1]), "the shape of the table", waves)


def _factorised(trunk: Trunk, rows: str, columns: str, asked: Grid | None, path: str) -> Added:
    """A table of rows and one of columns whose vectors are added (NaFlex)."""
    row, column = (numbers(_vectors_last(trunk.tensors[name], None), f"{path}: {name}") for name in (rows, columns))
    if row.ndim != 2 or column.ndim != 2 or row.shape[1] != column.shape[1] or not 0 < row.numel() * len(column) < MOST:
        shapes = f"{shown(tuple(row.shape))} and {shown(tuple(column.shape))}"
        raise UserError(
            f"{path}: {rows} and {columns} are {shapes}, no tables of rows and columns; is the file damaged?"
        )
    added = _on_grid(row[:, None] + column, asked, f"{path}: {rows} with {columns}")
    return Added(added.table, added.prefix, added.source, "factorized", f"the sum of {rows} and {columns}", added.axes)


def _flat(trunk: Trunk, rows: Tensor, known: Sequence[Clue], asked: Grid | None, what: str) -> Added:
    """A table (T, D) in one line, perhaps with rows for tokens in front."""
    counts = _counts(trunk, len(rows))
    if asked is not None or not any(math.prod(clue.grid) in counts for clue in known):
        waves = _waves_clue(rows, counts)
        if asked is not None and waves and waves[0].grid != asked:
            said = written(waves[0].grid)
            raise UserError(
                f"{what} is the sin-cos formula of {said}, not of --grid {written(asked)}; leave --grid away"
            )
        known = [*waves, *known]
    grid, count, source = settle(what, counts, known, asked)
    places = rows[len(rows) - count :]
    return _added(places.unflatten(0, grid), rows[: len(rows) - count], source, find_waves(places, [grid]))


def _counts(trunk: Trunk, rows: int) -> dict[int, str]:
    """How many places the rows can be, with none, some or all tokens in front having a row, in words.

    In some namings all have one.
    """
    tokens = trunk.tokens() or ([("a token in front", 1)] if trunk.projection is None else [])
    names = ["", *accumulate((kind for kind, _ in tokens), lambda a, b: f"{a} and {b}")]
    fronts = accumulate((count for _, count in tokens), initial=0)
    found = {
        rows - front: f" after {front} row{'s' * (front > 1)} for {name}" if front else ""
        for front, name in zip(fronts, names, strict=True)
        if front < rows
    }
    if found and re.search(SEATED, trunk.naming):
        found = dict([found.popitem()])
    return dict(sorted(found.items(), key=lambda item: -_squareness(item[0])))


def _squareness(count: int) -> float:
    """1 for a count that can be a square, towards 0 for one that can only be a line."""
    rows, columns = factorisations(count)[0]
    return rows / columns


def _waves_clue(rows: Tensor, counts: Sequence[int] | dict[int, str]) -> list[Clue]:
    """The grid of the sin-cos formula that the rows follow: a table of waves says its grid itself."""
    for count in counts:
        waves = find_waves(rows[len(rows) - count :], factorisations(count))
        if waves is not None and waves.grid is not None:
            return [Clue(waves.grid, "the sin-cos formula that the table follows")]
    return []


def _added(table: Tensor, prefix: Tensor, source: str, waves: Waves | None) -> Added:
    grid, dim = (table.shape[0], table.shape[1]), table.shape[2]
    front = f", {len(prefix)} row{'s' * (len(prefix) > 1)} in front" if len(prefix) else ""
    size = f"{written(grid)} places, {dim} wide{front}"
    if waves is None:
        return Added(table, prefix, source, "learned", f"a learned table of {size}", ROW_MAJOR)
    encoding = "sinusoidal" if waves.grid else "sinusoidal1d"
    return Added(
        table, prefix, source, encoding, f"fixed sines and cosines, stored for {size}", f"{ROW_MAJOR}; {waves.axes}"
    )

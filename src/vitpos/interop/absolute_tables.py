"""Finds the absolute position table (``pos_embed``) of a checkpoint, its grid, and whether it is a sin-cos table."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate

import torch
from torch import Tensor

from vitpos.errors import InputError
from vitpos.interop.architecture import TABLE_INCLUDES_PREFIX, TABLES, Trunk
from vitpos.interop.grids import Grid, GridHint, choose_grid, factorizations, format_grid
from vitpos.interop.untrusted_files import to_float32
from vitpos.printable import sanitize

MAX_NUMBERS = 1 << 28  # of a sum of row and column vectors, which a small file could make larger than memory
ROW_MAJOR = "tokens in row-major order"
TEMPERATURE = 10000.0
TOLERANCE = 0.01  # largest difference that is rounding (bfloat16's is .004) and not training
SAMPLE = 32  # positions compared before all are
LAYOUTS_2D = {  # order of the axes of sinusoids (N, axis, sin or cos, K) before flattening to vectors
    "sines and cosines of one axis, then of the other": (0, 1, 2, 3),
    "sines of both axes, then cosines": (0, 2, 1, 3),
    "alternating sine and cosine, one axis after the other": (0, 1, 3, 2),
}
LAYOUTS_1D = {  # the same for sinusoids (N, sin or cos, K)
    "alternating sine and cosine": (0, 2, 1),
    "sines, then cosines": (0, 1, 2),
}


@dataclass(frozen=True)
class AbsoluteTable:
    """The vectors that a checkpoint adds to its tokens (``pos_embed``), arranged on the grid of patches.

    Args:
        table: (R, C, D), vectors of the patches.
        prefix: (P, D), vectors of the P prefix tokens (CLS and registers) that have a row in the stored table.
        source: what determined the grid, such as "the shape of the table".
        encoding: name of the vitpos encoding of the same kind, such as ``learned``.
        description: kind and size of the table as text.
        axes: text on the order of tokens, and of axes within a vector where known.
    """

    table: Tensor
    prefix: Tensor
    source: str
    encoding: str
    description: str
    axes: str

    @property
    def grid(self) -> Grid:
        """Returns rows and columns of the table."""
        return self.table.shape[0], self.table.shape[1]


@dataclass(frozen=True)
class SinCosTable:
    """The sin-cos formula by which a stored position table was computed.

    Args:
        grid: rows and columns of a 2-D formula; None for a 1-D formula of the index, which implies no grid.
        axes: text on which axis the vectors start with, and the order of sines and cosines.
    """

    grid: Grid | None
    axes: str


def find_absolute_table(
    trunk: Trunk, hints: Sequence[GridHint], requested: Grid | None, dim: int | None, path: str
) -> AbsoluteTable | None:
    """Returns the absolute position table of a checkpoint; None if it has none.

    Args:
        trunk: the tensors of the vision transformer in the checkpoint.
        hints: grids implied by other tensors or the configuration; the first that fits the table is used.
        requested: the grid given by the caller, if any.
        dim: width of the tokens, if known.
        path: file name for error messages.
    """
    sides = [trunk.first(module + side for module in ("embeds.", "")) for side in ("pos_embed_y", "pos_embed_x")]
    if sides[0] is not None and sides[1] is not None:
        return _factorized(trunk, sides[0], sides[1], requested, path)
    name = trunk.first(TABLES)
    if name is None:
        return None
    label, tensor = f"{path}: {sanitize(trunk.root)}{name}", _vectors_last(trunk.tensors[name], dim)
    if tensor.ndim not in (2, 3) or not tensor.numel():
        shape = sanitize(tuple(trunk.tensors[name].shape))
        raise InputError(
            f"{label} is {shape}, not a table of position vectors (1, positions, width); is the file damaged?"
        )
    if dim is not None and tensor.shape[-1] != dim:
        raise InputError(
            f"{label} has vectors of width {tensor.shape[-1]}, but tokens have width {dim}; is the file damaged?"
        )
    if tensor.ndim == 3:
        return _on_grid(to_float32(tensor, label), requested, label)
    return _flat(trunk, to_float32(tensor, label), hints, requested, label)


def _vectors_last(tensor: Tensor, dim: int | None) -> Tensor:
    """Reshapes a stored position table to (N, D) or (R, C, D).

    Removes a batch axis of 1, and moves the first axis to the end if it has the token width ``dim`` and the last has not
    (PiT stores (D, R, C)).
    """
    if tensor.ndim in (3, 4) and len(tensor) == 1:
        tensor = tensor[0]
    channels_first = tensor.ndim == 3 and tensor.shape[0] == dim and tensor.shape[-1] != dim
    return tensor.permute(1, 2, 0) if channels_first else tensor


def _on_grid(table: Tensor, requested: Grid | None, label: str) -> AbsoluteTable:
    """Returns the :class:`AbsoluteTable` (vectors and their description) of a table (R, C, D), whose shape is its grid.

    Args:
        requested: the grid given by the caller, if any; raises if it is not (R, C).
        label: name of the table in error messages.
    """
    grid = (table.shape[0], table.shape[1])
    if requested not in (None, grid):
        stored, asked = format_grid(grid), format_grid(requested)
        raise InputError(f"{label} is stored on the grid {stored}, not grid {asked}; leave out grid")
    sin_cos = match_sincos(table.flatten(0, 1), [grid])
    return _described(table, table.new_zeros(0, table.shape[-1]), "the shape of the table", sin_cos)


def _factorized(trunk: Trunk, rows: str, columns: str, requested: Grid | None, path: str) -> AbsoluteTable:
    """Returns the table (R, C, D) that is the sum of a vector per row and a vector per column (timm's NaFlex).

    Args:
        trunk: the tensors of the vision transformer in the checkpoint.
        rows, columns: names of the tensors (R, D) and (C, D).
        requested: the grid given by the caller, if any; raises if it is not (R, C).
        path: file name for error messages.
    """
    row, column = (to_float32(_vectors_last(trunk.tensors[name], None), f"{path}: {name}") for name in (rows, columns))
    sizes_fit = row.ndim == 2 and column.ndim == 2 and row.shape[1] == column.shape[1]
    if not sizes_fit or not 0 < row.numel() * len(column) < MAX_NUMBERS:
        shapes = f"{sanitize(tuple(row.shape))} and {sanitize(tuple(column.shape))}"
        raise InputError(
            f"{path}: {rows} and {columns} are {shapes}, not tables of rows and columns; is the file damaged?"
        )
    both = _on_grid(row[:, None] + column, requested, f"{path}: {rows} with {columns}")
    return AbsoluteTable(both.table, both.prefix, both.source, "factorized", f"sum of {rows} and {columns}", both.axes)


def _flat(trunk: Trunk, rows: Tensor, hints: Sequence[GridHint], requested: Grid | None, label: str) -> AbsoluteTable:
    """Returns the :class:`AbsoluteTable` of a flat table ``rows`` (T, D): prefix rows, and patch rows as (R, C, D).

    The grid is the requested one; else that of a hint; else the one whose sines and cosines equal the table; else a
    square.

    Args:
        trunk: the tensors of the vision transformer in the checkpoint.
        hints: grids implied by other tensors or the configuration; the first that fits the table is used.
        requested: the grid given by the caller, if any.
        label: name of the table in error messages.
    """
    counts = _position_counts(trunk, len(rows))
    if requested is not None or not any(math.prod(hint.grid) in counts for hint in hints):
        sin_cos = _sincos_hint(rows, counts)
        if requested is not None and sin_cos and sin_cos[0].grid != requested:
            stored, asked = format_grid(sin_cos[0].grid), format_grid(requested)
            raise InputError(f"{label} is the sin-cos table of {stored}, not of grid {asked}; leave out grid")
        hints = [*sin_cos, *hints]
    grid, count, source = choose_grid(label, counts, hints, requested)
    vectors = rows[len(rows) - count :]
    return _described(vectors.unflatten(0, grid), rows[: len(rows) - count], source, match_sincos(vectors, [grid]))


def _position_counts(trunk: Trunk, rows: int) -> dict[int, str]:
    """Returns the numbers of patch positions that a flat table may have, each → an explanation of the other rows.

    For 197 rows and a CLS token: 196 → " after 1 row for CLS" and 197 → "", since some, all or none of the prefix tokens
    (CLS, registers) may have a row. Numbers that form squarer grids come first.

    Args:
        trunk: the tensors of the vision transformer in the checkpoint.
        rows: number of rows of the table.
    """
    tokens = trunk.prefix_tokens() or ([("a prefix token", 1)] if trunk.projection is None else [])
    names = ["", *accumulate((kind for kind, _ in tokens), lambda a, b: f"{a} and {b}")]
    prefixes = accumulate((count for _, count in tokens), initial=0)
    counts = {
        rows - prefix: f" after {prefix} row{'s' * (prefix > 1)} for {name}" if prefix else ""
        for prefix, name in zip(prefixes, names, strict=True)
        if prefix < rows
    }
    if counts and re.search(TABLE_INCLUDES_PREFIX, trunk.format):
        counts = dict([counts.popitem()])
    return dict(sorted(counts.items(), key=lambda item: -_squareness(item[0])))


def _squareness(count: int) -> float:
    """Returns rows / columns of the squarest grid of ``count`` positions: 1 for a square, near 0 for a prime."""
    rows, columns = factorizations(count)[0]
    return rows / columns


def _sincos_hint(rows: Tensor, counts: Iterable[int]) -> list[GridHint]:
    """Returns the grid of the sin-cos table that ``rows`` (T, D) contain, as a list of one hint; [] if they contain none.

    ``counts`` are possible numbers n of patch positions; the last n rows are compared with sin-cos tables.
    """
    for count in counts:
        sin_cos = match_sincos(rows[len(rows) - count :], factorizations(count))
        if sin_cos is not None and sin_cos.grid is not None:
            return [GridHint(sin_cos.grid, "the sin-cos formula of the table")]
    return []


def _described(table: Tensor, prefix: Tensor, source: str, sin_cos: SinCosTable | None) -> AbsoluteTable:
    grid, dim = (table.shape[0], table.shape[1]), table.shape[2]
    rows = f", {len(prefix)} prefix row{'s' * (len(prefix) > 1)}" if len(prefix) else ""
    size = f"{format_grid(grid)} positions, width {dim}{rows}"
    if sin_cos is None:
        return AbsoluteTable(table, prefix, source, "learned", f"learned table of {size}", ROW_MAJOR)
    encoding = "sinusoidal" if sin_cos.grid else "sinusoidal1d"
    axes = f"{ROW_MAJOR}; {sin_cos.axes}"
    return AbsoluteTable(table, prefix, source, encoding, f"fixed sines and cosines, stored for {size}", axes)


def match_sincos(table: Tensor, grids: Iterable[Grid]) -> SinCosTable | None:
    """Returns the sin-cos formula that a table (N, D) follows, 2-D on one of the ``grids`` or 1-D; None if none fits.

    The K = D/4 frequencies (1-D: D/2) are ω_k = 10000^(−k/K), as in MoCo-v3 and MAE, or in 2-D also 10000^(−k/(K − 1)),
    as in big_vision. Vectors of MoCo-v3 and timm start with the row, those of MAE and big_vision with the column.
    """
    table = table.double()
    index = torch.arange(len(table))
    sample = torch.linspace(0, len(table) - 1, min(SAMPLE, len(table))).round().long()
    for formula, vectors_at in _formulas(table.shape[1], grids):
        if all((vectors_at(part) - table[part]).abs().max() < TOLERANCE for part in (sample, index)):
            return formula
    return None


def _formulas(dim: int, grids: Iterable[Grid]) -> Iterator[tuple[SinCosTable, Callable[[Tensor], Tensor]]]:
    """Yields every known sin-cos formula for vectors of width ``dim``, with a function from indices (M,) to (M, D).

    The function returns the vectors of M positions, given by row-major index. ``grids`` are those to try in 2-D
    formulas.
    """
    for grid in grids if dim % 4 == 0 else ():
        for first, axes in (("rows", (0, 1)), ("columns", (1, 0))):
            for layout, order in LAYOUTS_2D.items():
                for divisor in (dim // 4, max(dim // 4 - 1, 1)):
                    formula = SinCosTable(grid, f"vectors start with {first}: {layout}")
                    yield formula, partial(_sincos_2d, grid=grid, axes=axes, order=order, dim=dim, divisor=divisor)
    for layout, order_1d in LAYOUTS_1D.items() if dim % 2 == 0 else ():
        for start in (0, 1):  # 1 where CLS is index 0
            formula = SinCosTable(None, f"1-D, of the index: {layout}")
            yield formula, partial(_sincos_1d, start=start, order=order_1d, dim=dim)


def _sincos_2d(
    index: Tensor, *, grid: Grid, axes: tuple[int, int], order: tuple[int, ...], dim: int, divisor: int
) -> Tensor:
    """Returns 2-D sin-cos vectors (M, D) of M positions of a grid.

    Args:
        index: (M,), row-major indices of the positions.
        axes: (0, 1) if vectors start with the row, (1, 0) with the column.
        order: permutation of the axes (position, row or column, sin or cos, frequency) before flattening.
        dim: width D of the vectors.
        divisor: the frequencies are ω_k = 10000^(−k/divisor).
    """
    coords = torch.stack([index // grid[1], index % grid[1]], 1)[:, axes]
    return _sinusoids(coords, dim // 4, divisor).permute(order).flatten(1)


def _sincos_1d(index: Tensor, *, start: int, order: tuple[int, ...], dim: int) -> Tensor:
    """Returns 1-D sin-cos vectors (M, D) of the coordinates ``index + start``, where ``index`` is (M,).

    Args:
        order: permutation of the axes (position, sin or cos, frequency) before flattening.
        dim: width D of the vectors.
    """
    return _sinusoids(index + start, dim // 2, dim // 2).permute(order).flatten(1)


def _sinusoids(coords: Tensor, count: int, divisor: int) -> Tensor:
    """Returns sines and cosines (M, …, 2, K) of coordinates (M, …) times 10000^(−k/divisor), k < K = ``count``."""
    angles = coords[..., None].double() * TEMPERATURE ** (-torch.arange(count, dtype=torch.float64) / divisor)
    return torch.stack([angles.sin(), angles.cos()], -2)

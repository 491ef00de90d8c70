"""Finds the tables of relative encodings in a checkpoint: biases per offset, and vectors of row and column offsets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from vitpos.errors import InputError
from vitpos.interop.architecture import Trunk
from vitpos.interop.grids import (
    Grid,
    GridHint,
    factorizations,
    format_grid,
    format_grids,
    grid_from_relative_index,
    grid_hints,
    window_from_config,
)
from vitpos.interop.untrusted_files import to_float32
from vitpos.printable import sanitize

TABLE = "relative_position_bias_table"
INDEX = "relative_position_index"
COORDINATES = "relative_coords_table"
CLS_ROWS = 3  # BEiT's rows after the offsets: CLS to patch, patch to CLS, CLS to CLS


def window_hints(trunk: Trunk, config: Mapping[str, Any]) -> list[GridHint]:
    """Returns the grids, or attention windows, that tensors of relative encodings imply, with the tensors' names.

    The tensors are index tables, coordinate tables and tables of row and column offsets. The last hint is
    ``window_size`` of the configuration, if given.

    Args:
        trunk: the tensors of the vision transformer in the checkpoint.
        config: configuration of the checkpoint.
    """
    grids: list[tuple[Grid | None, str]] = []
    grids += [(grid_from_relative_index(index), name) for name, index in trunk.matching(INDEX).items()]
    grids += [(grid_from_offsets(tensor.shape[-3:-1]), name) for name, tensor in trunk.matching(COORDINATES).items()]
    for name, rows in trunk.matching("rel_pos_h").items():
        columns = trunk.tensors.get(name.removesuffix("h") + "w")
        if columns is not None and rows.ndim and columns.ndim:
            grids.append((grid_from_offsets((len(rows), len(columns))), name))
    configured = window_from_config(config)
    return list(dict.fromkeys([*grid_hints(grids), *([configured] if configured else [])]))


def grid_from_offsets(sides: Sequence[int]) -> Grid | None:
    """Returns the grid (R, C) for numbers of offsets ``sides`` = (2R−1, 2C−1); None unless they are two odd numbers."""
    if len(sides) != 2 or any(side % 2 == 0 for side in sides):
        return None
    return (sides[0] + 1) // 2, (sides[1] + 1) // 2


def largest_decomposed(tables: Mapping[str, tuple[Tensor, Tensor]]) -> GridHint | None:
    """Returns the grid (R, C) of the largest tables, with the name of their tensor; None if there are no tables.

    ``tables`` is name → vectors of row offsets (2R−1, d) and of column offsets (2C−1, d). The largest belong to layers
    with global attention, smaller ones to windows.
    """
    grids = grid_hints((grid_from_offsets((len(rows), len(columns))), name) for name, (rows, columns) in tables.items())
    return max(grids, key=lambda hint: hint.grid[0] * hint.grid[1], default=None)


def largest_biases(tables: Mapping[str, Tensor], hints: Sequence[GridHint]) -> GridHint | None:
    """Returns the grid (R, C) of the largest bias table (2R−1, 2C−1, H), with its source; None if there are no tables.

    The source is that of the hint with the same grid, otherwise the name of the table.

    Args:
        tables: bias tables by name.
        hints: grids implied by other tensors or the configuration.
    """
    if not tables:
        return None
    name = max(tables, key=lambda name: tables[name][..., 0].numel())
    grid = grid_from_offsets(tables[name].shape[:2])
    assert grid is not None
    return next((hint for hint in hints if hint.grid == grid), GridHint(grid, sanitize(name)))


def find_bias_tables(
    trunk: Trunk, hints: Sequence[GridHint], requested: Grid | None, *, strict: bool, path: str
) -> dict[str, Tensor]:
    """Returns tensor name → bias table (2R−1, 2C−1, H), in the order of layers.

    The grid (R, C) of a table is the requested one, or that of the table's ``relative_position_index`` or of a hint, or
    the only smaller window that fits, since windows shrink to the grid of late stages.

    Args:
        trunk: the tensors of the vision transformer in the checkpoint.
        hints: grids implied by other tensors or the configuration, used in order.
        requested: the grid given by the caller, if any.
        strict: raise if the first table fits no grid; otherwise such tables are left out.
        path: file name for error messages.
    """
    tables = {}
    for name, tensor in trunk.matching(TABLE).items():
        label = f"{path}: {sanitize(name)}"
        shape = sanitize(tuple(tensor.shape))
        if tensor.ndim == 3:  # (H, 2R−1, 2C−1)
            if grid_from_offsets(tensor.shape[1:]) is None or not tensor.numel():
                raise InputError(f"{label} is {shape}, not a table of (heads, 2R-1, 2C-1); is the file damaged?")
            tables[name] = to_float32(tensor, label).permute(1, 2, 0)
            continue
        rows = len(tensor) - CLS_ROWS * (len(tensor) % 2 == 0) if tensor.ndim == 2 else 0  # (2R−1)(2C−1) is odd
        if rows < 1 or not tensor.numel():
            raise InputError(f"{label} is {shape}, not a table of (offsets, heads); is the file damaged?")
        own = name.replace(TABLE, INDEX)
        index = grid_from_relative_index(trunk.tensors[own]) if own in trunk.tensors else None
        known = [*grid_hints([(index, own)]), *hints]
        grid = _choose_window(label, rows, known, requested, strict=strict and not tables)
        if grid is not None:
            tables[name] = to_float32(tensor[:rows], label).unflatten(0, (2 * grid[0] - 1, 2 * grid[1] - 1))
    return tables


def _choose_window(
    label: str, rows: int, hints: Sequence[GridHint], requested: Grid | None, *, strict: bool
) -> Grid | None:
    """Returns the attention window (R, C) of a bias table with ``rows`` = (2R−1)(2C−1) offsets.

    If it cannot be determined, raises if ``strict`` and otherwise returns None.

    Args:
        label: name of the table in error messages.
        hints: grids implied by other tensors or the configuration, used in order.
        requested: the grid given by the caller, if any.
    """
    fitting = [grid for sides in factorizations(rows) if (grid := grid_from_offsets(sides)) is not None]
    for grid in [requested] if requested else [hint.grid for hint in hints]:
        within = [other for other in fitting if other[0] <= grid[0] and other[1] <= grid[1]]
        if grid in fitting:
            return grid
        if len(within) == 1 and not strict:
            return within[0]
    if not strict:
        return None
    candidates = format_grids(fitting)
    if requested:
        raise InputError(
            f"{label} does not fit grid {format_grid(requested)}: it has {rows} offsets ({candidates}); "
            "give one of these"
        )
    raise InputError(f"{label} has {rows} offsets, and the file does not state their grid: {candidates}; give grid RxC")


def find_decomposed_tables(trunk: Trunk, path: str) -> dict[str, tuple[Tensor, Tensor]]:
    """Returns name → a vector per row offset (2R−1, d) and a vector per column offset (2C−1, d) (SAM, ViTDet, MViT-v2).

    Args:
        trunk: the tensors of the vision transformer in the checkpoint.
        path: file name for error messages.
    """
    tables = {}
    for name, rows in trunk.matching("rel_pos_h").items():
        other = name.removesuffix("h") + "w"
        columns = trunk.tensors.get(other)
        labels = sanitize(name), sanitize(other)
        if columns is None or not _same_width(rows, columns):
            raise InputError(
                f"{path}: {labels[0]} and {labels[1]} are not tables of (2R-1, d) and (2C-1, d); is the file damaged?"
            )
        pair = to_float32(rows, f"{path}: {labels[0]}"), to_float32(columns, f"{path}: {labels[1]}")
        tables[name.removesuffix("_h")] = pair
    return tables


def _same_width(rows: Tensor, columns: Tensor) -> bool:
    return rows.ndim == columns.ndim == 2 and rows.shape[1] == columns.shape[1] and min(*rows.shape, len(columns)) > 0

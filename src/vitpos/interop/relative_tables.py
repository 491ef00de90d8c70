"""Finds relative encodings in a checkpoint: bias tables, vectors of row and column offsets, and networks for biases."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
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
from vitpos.interop.sanitize import sanitize
from vitpos.interop.untrusted_files import MAX_MAGNITUDE, to_float32

TABLE = "relative_position_bias_table"
INDEX = "relative_position_index"
COORDINATES = "relative_coords_table"
CLS_ROWS = 3  # BEiT's rows after the offsets: CLS to patch, patch to CLS, CLS to CLS
NETWORK = r"(cpb_mlp\.2|continuous_position_bias_mlp\.2|(shared_)?rel_pos\.mlp\.fc2)\.weight"
IN_ATTENTION = r"att(n|ention)\b|shared_rel_pos"  # networks elsewhere give vectors, not biases
STAGE = r"(?:layers|stages)\.(\d+)\.blocks\."
MAX_WORK = 1 << 26  # hidden units × offsets, far above the 512 · 47² of the largest window in use


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
            f"{label} does not fit --grid {format_grid(requested)}: it has {rows} offsets ({candidates}); "
            "give one of these"
        )
    raise InputError(
        f"{label} has {rows} offsets, and the file does not state their grid: {candidates}; give --grid RxC"
    )


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


def find_bias_networks(trunk: Trunk) -> dict[str, Tensor]:
    """Returns name → last weight (H, hidden units) of each MLP from offset to bias (Swin-v2, timm's ``rel_pos``).

    ``trunk`` holds the tensors of the vision transformer in the checkpoint.
    """
    return {name: tensor for name, tensor in trunk.matching(NETWORK).items() if tensor.ndim == 2}


def evaluate_bias_networks(
    trunk: Trunk, config: Mapping[str, Any], *, requested: Grid | None, image: GridHint | None, path: str
) -> dict[str, Tensor]:
    """Evaluates the networks from offset to bias on all offsets of their window; returns name → bias (2R−1, 2C−1, H).

    Networks whose window is unknown are left out.

    Swin-v2: 16·sigmoid(network(Δ)) with Δ = sign·log2(1 + 8|offset|/(M − 1))/3 per axis, M the side of the window in
    pretraining, by default the window itself. timm's networks with a last bias: network(sign·ln(1 + |offset|)). Inputs
    that are stored beside a network are used as they are.

    Args:
        requested: the window given by the caller, if any.
        image: the grid of the whole image, if known.
    """
    tables = {}
    for name in find_bias_networks(trunk):
        stem = name.removesuffix("2.weight")
        first = stem + ("1" if stem.endswith("fc") else "0")
        parts = [trunk.tensors.get(key) for key in (f"{first}.weight", f"{first}.bias", name)]
        weights = [to_float32(part, f"{path}: {sanitize(name)}") for part in parts if part is not None]
        inputs = _network_inputs(trunk, config, stem, requested, image)
        if inputs is None or len(weights) < 3 or not re.search(IN_ATTENTION, name):
            continue
        weight, bias, out = weights
        out_bias = trunk.tensors.get(f"{stem}2.bias")
        if not _is_network(weight, bias, out, inputs) or (out_bias is not None and out_bias.shape != out.shape[:1]):
            continue
        values = F.relu(inputs @ weight.mT + bias) @ out.mT
        key = stem.removesuffix("fc").removesuffix(".")
        label = f"{path}: {sanitize(key)}"
        tables[key] = 16 * values.sigmoid() if out_bias is None else to_float32(values + out_bias, label)
    return tables


def _is_network(weight: Tensor, bias: Tensor, out: Tensor, inputs: Tensor) -> bool:
    """Returns whether the weights form an MLP with two inputs and H outputs that is small enough to evaluate.

    Args:
        weight, bias: first layer, (hidden, 2) and (hidden,) in such an MLP.
        out: weight of the last layer, (H, hidden).
        inputs: (2R−1, 2C−1, 2), one input per offset.
    """
    hidden = out.shape[1]
    fits = weight.shape == (hidden, 2) and bias.shape == (hidden,) and out.numel() > 0
    return fits and hidden * inputs.shape[:2].numel() <= MAX_WORK


def _network_inputs(
    trunk: Trunk, config: Mapping[str, Any], stem: str, requested: Grid | None, image: GridHint | None
) -> Tensor | None:
    """Returns the inputs (2R−1, 2C−1, 2) of a network from offset to bias; None if its attention window is unknown.

    Args:
        stem: start of the names of its tensors, such as ``layers.0.blocks.0.attn.cpb_mlp.``.
        requested: the window given by the caller, if any.
        image: the grid of the whole image, if known.
    """
    module = re.sub(r"\w+\.(fc)?$", "", stem)
    stored = _stored_inputs(trunk, module)
    if stored is not None and stored.abs().max() <= MAX_MAGNITUDE:  # timm's are NaN for a single row or column
        return stored
    index = trunk.tensors.get(module + INDEX)
    window = grid_from_relative_index(index) if index is not None else None
    window = grid_from_offsets(stored.shape[:2]) if stored is not None else window
    window = window or _network_window(config, stem, requested, image)
    if window is None or (2 * window[0] - 1) * (2 * window[1] - 1) > MAX_WORK // 64:
        return None
    rows, columns = (torch.arange(1 - side, side, dtype=torch.float32) for side in window)
    offsets = torch.stack(torch.meshgrid(rows, columns, indexing="ij"), -1)
    if f"{stem}2.bias" in trunk.tensors:
        return offsets.sign() * offsets.abs().log1p()
    spans = torch.tensor([max(side - 1, 1) for side in _pretraining_window(config, stem) or window])
    return offsets.sign() * torch.log2(1 + 8 * offsets.abs() / spans) / 3


def _stored_inputs(trunk: Trunk, module: str) -> Tensor | None:
    """Returns the inputs (2R−1, 2C−1, 2) that a checkpoint stores beside a network from offset to bias; None if absent.

    ``module`` is the prefix of their names, such as ``layers.0.blocks.0.attn.``.
    """
    name = trunk.first(module + key for key in (COORDINATES, "rel_coords_log"))
    table = trunk.tensors[name] if name else torch.zeros(0)
    if not table.is_floating_point() or table.ndim not in (3, 4) or not table.numel():
        return None
    single = table.shape[-1] == 2 and (table.ndim == 3 or len(table) == 1)
    valid = single and grid_from_offsets(table.shape[-3:-1]) is not None
    return table.float().reshape(table.shape[-3:]) if valid else None


def _network_window(
    config: Mapping[str, Any], stem: str, requested: Grid | None, image: GridHint | None
) -> Grid | None:
    """Returns the attention window (R, C) of a network from offset to bias that stores none; None if unknown.

    It is the whole grid for global attention, otherwise the requested or configured window, at most the stage's grid.

    Args:
        stem: start of the names of its tensors, such as ``layers.0.blocks.0.attn.cpb_mlp.``.
        requested: the window given by the caller, if any.
        image: the grid of the whole image, if known.
    """
    stage = re.search(STAGE, stem)
    if stage is None and "cpb_mlp" not in stem:
        return requested or (image.grid if image else None)
    configured = window_from_config(config)
    window = requested or (configured.grid if configured else None)
    if window is None or image is None or stage is None:
        return window
    rows, columns = (max(side >> min(int(stage[1]), 16), 1) for side in image.grid)
    return min(window[0], rows), min(window[1], columns)


def _pretraining_window(config: Mapping[str, Any], stem: str) -> Grid | None:
    """Returns the window (R, C) in pretraining of a Swin-v2 stage, from ``pretrained_window_sizes``; None if not given.

    ``stem`` is the start of a tensor name that contains the number of the stage, such as ``layers.0.blocks.0.``.
    """
    nested, stage = config.get("model_args"), re.search(STAGE, stem)
    for level in (config, nested if isinstance(nested, Mapping) else {}):
        sides = level.get("pretrained_window_sizes")
        if isinstance(sides, (list, tuple)) and stage and int(stage[1]) < len(sides):
            side = sides[int(stage[1])]
            return (side, side) if type(side) is int and side > 1 else None
    return None

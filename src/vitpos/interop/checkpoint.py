"""Finds position encoding, grid and position tables in the ViT checkpoint of any library, without running its code.

``read_checkpoint("vit.safetensors", grid=(14, 14)).table`` is (14, 14, D).
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from torch import Tensor

from vitpos.errors import InputError, Notice
from vitpos.interop.absolute_tables import AbsoluteTable, find_absolute_table
from vitpos.interop.architecture import Trunk, count_heads, count_layers, find_trunk, patch_projection
from vitpos.interop.bias_networks import evaluate_bias_networks, find_bias_networks
from vitpos.interop.grids import ASSUMED, Grid, GridHint, format_grid, grid_from_config
from vitpos.interop.relative_tables import (
    find_bias_tables,
    find_decomposed_tables,
    largest_biases,
    largest_decomposed,
    window_hints,
)
from vitpos.interop.rotary_tables import RotaryTables, find_rotary_tables, rotary_grid_hints
from vitpos.interop.tensor_files import CheckpointContents, read_contents
from vitpos.interop.untrusted_files import errors_in_one_line
from vitpos.printable import sanitize

CONVOLUTION = r"(pos_block|peg|cpe\d*|pos_embed)(\.\w+)*\.weight"  # depthwise, before a block (CPE, PEG)
NONE_STORED = (
    "no positions are stored: there are none, or code computes them, as most fixed sin-cos and rotary encodings"
)


@dataclass(frozen=True)
class Checkpoint:
    """The position encoding and dimensions of a checkpoint; None where the file does not determine them.

    Args:
        path: the file or folder that was read.
        format: library or family of the tensor names, such as timm or DINOv2.
        encodings: name of the vitpos encoding of the same kind → description of what is stored.
        prefix_tokens: kind of each token before the patches, such as CLS or register.
        grid: rows and columns of patches; those of a window, if only windows have tables.
        grid_source: what determined the grid, such as "the shape of the table".
        axes: text on the order of tokens, and of axes within a vector where known.
        patch: height and width of a patch in pixels.
        channels, dim, depth, heads: input channels, token width, number of blocks, number of heads.
        table, prefix: vectors added to the patch tokens (R, C, D) and to the prefix tokens (P, D).
        biases: tensor name → bias of the logits at each offset (2R−1, 2C−1, H).
        decomposed: tensor name → a vector per row offset (2R−1, d) and per column offset (2C−1, d), as in SAM.
        frequencies: (depth, H|1, 2, pairs), rotary frequencies in radians per patch, row before column.
        periods: (d/4,), rotary periods for coordinates from −1 to 1 (DINOv3).
    """

    path: Path
    format: str
    encodings: dict[str, str]
    prefix_tokens: tuple[str, ...]
    grid: Grid | None
    grid_source: str
    axes: str
    patch: tuple[int, int] | None
    channels: int | None
    dim: int | None
    depth: int | None
    heads: int | None
    table: Tensor | None = None
    prefix: Tensor | None = None
    biases: dict[str, Tensor] = field(default_factory=dict)
    decomposed: dict[str, tuple[Tensor, Tensor]] = field(default_factory=dict)
    frequencies: Tensor | None = None
    periods: Tensor | None = None


def read_checkpoint(path: str | Path, *, grid: Grid | None = None) -> Checkpoint:
    """Reads a checkpoint file or folder and returns its position encoding and dimensions.

    A square grid is assumed, with a warning, if the file gives nothing but a square number of positions.

    Args:
        grid: rows and columns of patches; needed if neither tensors nor configuration determine them.
    """
    if grid is not None and min(grid) < 1:
        raise InputError(f"grid {format_grid(grid)} has no positions; give rows and columns, such as 14x14")
    contents = read_contents(path)
    with errors_in_one_line(contents.path):
        found = recognize(contents, grid=grid)
    if found.grid and found.grid_source.startswith(ASSUMED):
        remedy = f"give grid RxC if it is not {format_grid(found.grid)}"
        warnings.warn(f"{contents.path}: the file does not state its grid, {found.grid_source}; {remedy}", Notice, 2)
    return found


def recognize(contents: CheckpointContents, *, grid: Grid | None = None) -> Checkpoint:
    """Returns the position encoding of a checkpoint that was read, and the grid, width, depth and heads of its model.

    Args:
        contents: the tensors and the configuration of the checkpoint.
        grid: rows and columns of patches; needed if neither tensors nor configuration determine them.
    """
    path, trunk = str(contents.path), find_trunk(contents.tensors, contents.config)
    if trunk is None:
        some = ", ".join(map(sanitize, list(contents.tensors)[:3]))
        raise InputError(f"{path} has no tensor names of a known vision transformer ({some}, …); give a ViT checkpoint")
    patch, channels, dim = patch_projection(trunk, path)
    image = grid_from_config(contents.config, patch)
    hints = [*([image] if image else []), *rotary_grid_hints(trunk), *window_hints(trunk, contents.config)]
    absolute = find_absolute_table(trunk, hints, grid, dim, path)
    chosen = GridHint(absolute.grid, absolute.source) if absolute else GridHint(grid, "as requested") if grid else None
    bias_hints = [*([chosen] if chosen else []), *hints]
    tables = find_bias_tables(trunk, bias_hints, grid, strict=absolute is None, path=path)
    window = grid if absolute is None else None  # a table of the whole image implies nothing about windows
    evaluated = evaluate_bias_networks(trunk, contents.config, requested=window, image=image, path=path)
    biases = tables | evaluated
    decomposed = find_decomposed_tables(trunk, path)
    rotary_hint = next(iter(rotary_grid_hints(trunk)), None)
    source = chosen or rotary_hint or largest_decomposed(decomposed) or largest_biases(biases, hints) or image
    rotary = find_rotary_tables(trunk, contents.config, path)
    frequencies, periods = (rotary.frequencies, rotary.periods) if rotary else (None, None)
    known_heads = {table.shape[-1] for table in biases.values()}
    known_heads |= {weight.shape[0] for weight in find_bias_networks(trunk).values()}
    known_heads |= {frequencies.shape[1]} if frequencies is not None and frequencies.shape[1] > 1 else set()
    head_dims = {rows.shape[1] for rows, _ in decomposed.values()}
    head_dims |= {4 * len(periods)} if periods is not None else set()
    return Checkpoint(
        path=contents.path,
        format=trunk.format,
        encodings=_encodings(trunk, absolute, tables, evaluated, decomposed, rotary),
        prefix_tokens=tuple(kind for kind, count in trunk.prefix_tokens() for _ in range(count)),
        grid=source.grid if source else None,
        grid_source=source.source if source else "",
        axes=absolute.axes if absolute else "",
        patch=patch,
        channels=channels,
        dim=dim or (absolute.table.shape[-1] if absolute else None),
        depth=count_layers(trunk),
        heads=count_heads(trunk, contents.config, dim, known=known_heads, head_dims=head_dims),
        table=absolute.table if absolute else None,
        prefix=absolute.prefix if absolute else None,
        biases=biases,
        decomposed=decomposed,
        frequencies=frequencies,
        periods=periods,
    )


def _encodings(
    trunk: Trunk,
    absolute: AbsoluteTable | None,
    tables: Mapping[str, Tensor],
    evaluated: Mapping[str, Tensor],
    decomposed: Mapping[str, tuple[Tensor, Tensor]],
    rotary: RotaryTables | None,
) -> dict[str, str]:
    """Returns encoding name, as in ``vitpos list``, → description of what the checkpoint stores of it.

    Args:
        trunk: the tensors of the vision transformer in the checkpoint.
        absolute: the table added to the tokens, if any.
        tables: bias tables (2R−1, 2C−1, H) by name.
        evaluated: bias tables of the same shape, computed by networks such as Swin-v2's.
        decomposed: vectors of row offsets and of column offsets, by name.
        rotary: the rotary encoding, if any.
    """
    found = {absolute.encoding: absolute.description} if absolute else {}
    if tables:
        others = len(trunk.matching("relative_position_bias_table")) - len(tables)
        note = f"; the window of {others} more is unknown" if others else ""
        found["relative"] = f"biases by offset, {_layers(tables)}, {_first(tables)}{note}"
    elif biases := trunk.matching("attention_biases|relative_position_bias_table"):
        found["relative"] = f"biases by offset, {_layers(biases)}, in a layout that the file does not state"
    if decomposed:
        found["decomposed"] = f"vectors of row and column offsets, {_layers(decomposed)}"
    if networks := find_bias_networks(trunk):
        note = f", evaluated in {len(evaluated)}, {_first(evaluated)}" if evaluated else ""
        found["cpb"] = f"networks from offset to bias, {_layers(networks)}{note}"
    if rotary:
        found[rotary.encoding] = rotary.description
    if convolutions := [w for w in trunk.matching(CONVOLUTION).values() if w.ndim == 4 and w.shape[1] == 1]:
        found["cpe"] = f"{len(convolutions)} depthwise convolutions of the tokens"
    if trunk.matching(r"pos_embed\.token_projection\.weight"):
        found["fourier"] = "Fourier features of the position with a learned projection"
    return found or {"none": NONE_STORED}


def _first(tables: Mapping[str, Tensor]) -> str:
    rows, columns, heads = next(iter(tables.values())).shape
    return f"the first for {format_grid(((rows + 1) // 2, (columns + 1) // 2))} positions and {heads} heads"


def _layers(tables: Mapping[str, object]) -> str:
    return "one for all layers" if len(tables) == 1 else f"in {len(tables)} layers"

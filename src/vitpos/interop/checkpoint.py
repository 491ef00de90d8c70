"""Anyone's ViT checkpoint: which position encoding it holds, on which grid, and its tables in our shapes.

``open_checkpoint("vit.safetensors", grid=(14, 14)).table`` is (R, C, D).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from torch import Tensor

from vitpos.errors import UserError
from vitpos.interop import architecture
from vitpos.interop.absolute_tables import Added, find_added
from vitpos.interop.continuous import network_tables, networks
from vitpos.interop.formats import one_line
from vitpos.interop.grids import Clue, Grid, of_image, written
from vitpos.interop.naming import Trunk, find_trunk
from vitpos.interop.relative_tables import bias_tables, decomposed, laid_out, largest, windows
from vitpos.interop.rotary_tables import Rotations, find_rotations, rotary_grids
from vitpos.interop.sanitize import shown
from vitpos.interop.tensor_files import Contents, read_contents

CONVOLUTION = r"(pos_block|peg|cpe\d*|pos_embed)(\.\w+)*\.weight"  # depthwise, in front of a block (CPE, PEG)
NOTHING = "no position is stored: there is none, or one that code computes, as fixed sines and most rotary ones are"


@dataclass(frozen=True)
class Checkpoint:
    """What a foreign checkpoint says of position. What its file cannot say is None."""

    path: Path
    naming: str  # timm, DeiT, DINOv2, MAE, Hugging Face ViT, JAX, …
    encodings: dict[str, str]  # our names of the encodings found, each with a sentence on what is stored
    tokens: tuple[str, ...]  # the tokens in front of the patches: CLS, distillation, register …
    grid: Grid | None  # rows, columns of the patches; of a window, where only windows have tables
    grid_source: str  # what said so
    axes: str  # the order of tokens, and of axes within a vector, where known
    patch: tuple[int, int] | None
    channels: int | None
    dim: int | None
    depth: int | None
    heads: int | None
    table: Tensor | None = None  # (R, C, D), what is added at each place
    prefix: Tensor | None = None  # (P, D), the rows of the table before the places
    relative: dict[str, Tensor] = field(
        default_factory=dict
    )  # name → (2R−1, 2C−1, H), by layer; also what networks give
    decomposed: dict[str, tuple[Tensor, Tensor]] = field(default_factory=dict)  # name → (2R−1, d), (2C−1, d)
    frequencies: Tensor | None = None  # (depth, H|1, 2, pairs), radians a patch, row before column
    periods: Tensor | None = None  # (d/4,), of coordinates from −1 to 1


def open_checkpoint(path: str | Path, *, grid: Grid | None = None) -> Checkpoint:
    """Reads and recognises a checkpoint; ``grid`` is needed where neither its tensors nor its configuration tell it."""
    if grid is not None and min(grid) < 1:
        raise UserError(f"--grid {written(grid)} has no places; give rows and columns, such as 14x14")
    contents = read_contents(path)
    with one_line(contents.path):
        return recognise(contents, grid=grid)


def recognise(contents: Contents, *, grid: Grid | None = None) -> Checkpoint:
    """What the contents of a checkpoint say of position."""
    path, trunk = str(contents.path), find_trunk(contents.tensors, contents.about)
    if trunk is None:
        some = ", ".join(map(shown, list(contents.tensors)[:3]))
        raise UserError(f"{path} is no vision transformer that we know by its names ({some}, …); give a ViT checkpoint")
    patch, channels, dim = architecture.projection(trunk, path)
    image = of_image(contents.about, patch)
    known = [*([image] if image else []), *rotary_grids(trunk), *windows(trunk, contents.about)]
    added = find_added(trunk, known, grid, dim, path)
    asked = Clue(added.grid, added.source) if added else Clue(grid, "as asked") if grid else None
    tables = bias_tables(trunk, [*([asked] if asked else []), *known], grid, strict=added is None, path=path)
    within = grid if added is None else None  # a table for the whole picture says nothing of windows
    evaluated = network_tables(trunk, contents.about, asked=within, picture=image, path=path)
    relative = tables | evaluated
    apart = decomposed(trunk, path)
    told = asked or next(iter(rotary_grids(trunk)), None) or largest(apart) or laid_out(relative, known) or image
    rotations = find_rotations(trunk, contents.about, path)
    frequencies, periods = (rotations.frequencies, rotations.periods) if rotations else (None, None)
    widths = {rows.shape[1] for rows, _ in apart.values()} | ({4 * len(periods)} if periods is not None else set())
    return Checkpoint(
        path=contents.path,
        naming=trunk.naming,
        encodings=_encodings(trunk, added, tables, evaluated, apart, rotations),
        tokens=tuple(kind for kind, count in trunk.tokens() for _ in range(count)),
        grid=told.grid if told else None,
        grid_source=told.source if told else "",
        axes=added.axes if added else "",
        patch=patch,
        channels=channels,
        dim=dim or (added.table.shape[-1] if added else None),
        depth=architecture.depth(trunk),
        heads=architecture.heads(trunk, contents.about, dim, relative=relative, widths=widths, frequencies=frequencies),
        table=added.table if added else None,
        prefix=added.prefix if added else None,
        relative=relative,
        decomposed=apart,
        frequencies=frequencies,
        periods=periods,
    )


def _encodings(
    trunk: Trunk,
    added: Added | None,
    tables: Mapping[str, Tensor],
    evaluated: Mapping[str, Tensor],
    apart: Mapping[str, tuple[Tensor, Tensor]],
    rotations: Rotations | None,
) -> dict[str, str]:
    """What was found, by our names of it."""
    found = {added.encoding: added.said} if added else {}
    if tables:
        more = len(trunk.ending("relative_position_bias_table")) - len(tables)
        left = f"; {more} more do not say their window" if more else ""
        found["relative"] = f"biases by offset, {_layers(tables)}, {_first(tables)}{left}"
    elif biases := trunk.ending("attention_biases|relative_position_bias_table"):
        found["relative"] = f"biases by offset, {_layers(biases)}, which the file does not lay out"
    if apart:
        found["decomposed"] = f"tables of rows and columns by offset, {_layers(apart)}"
    if cpb := networks(trunk):
        seen = f", evaluated in {len(evaluated)}, {_first(evaluated)}" if evaluated else ""
        found["cpb"] = f"networks from offset to bias, {_layers(cpb)}{seen}"
    if rotations:
        found[rotations.encoding] = rotations.said
    if convolutions := [w for w in trunk.ending(CONVOLUTION).values() if w.ndim == 4 and w.shape[1] == 1]:
        found["cpe"] = f"depthwise convolutions of the tokens, {len(convolutions)} of them"
    if trunk.ending(r"pos_embed\.token_projection\.weight"):
        found["fourier"] = "waves of the place through a learned projection"
    return found or {"none": NOTHING}


def _first(relative: Mapping[str, Tensor]) -> str:
    rows, columns, heads = next(iter(relative.values())).shape
    return f"the first for {written(((rows + 1) // 2, (columns + 1) // 2))} places and {heads} heads"


def _layers(found: Mapping[str, object]) -> str:
    return "one for all layers" if len(found) == 1 else f"in {len(found)} layers"

"""Finds the rotary encoding of a checkpoint: learned frequencies, periods or stored angles. Most models store none."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vitpos.errors import InputError
from vitpos.interop.architecture import Trunk
from vitpos.interop.grids import GridHint, grid_from_axial_angles, grid_from_coordinates, grid_hints
from vitpos.interop.untrusted_files import to_float32
from vitpos.printable import sanitize

MODEL_NAMES = {  # encoding → pattern of the names of models that have it without storing anything
    "rope_dino": r"(?i)dinov3",
    "rope": r"(?i)(^|[_-])rope(?!.*mixed)|eva-?02(?!_enormous)|pe_(core|lang|spatial)",
}
TOLERANCE = 0.01  # largest difference that counts as rounding
MIN_PERIOD = 1e-4  # far below the step between two patches


@dataclass(frozen=True)
class RotaryTables:
    """The rotary encoding of a checkpoint.

    Args:
        encoding: name of the vitpos encoding of the same kind, such as ``rope_mixed``.
        description: what the checkpoint stores of it, as text.
        frequencies: (depth, H|1, 2, pairs), radians per patch, row before column; None if not stored.
        periods: (d/4,), for coordinates from −1 to 1 (DINOv3); None if not stored.
    """

    encoding: str
    description: str
    frequencies: Tensor | None = None
    periods: Tensor | None = None


def find_rotary_tables(trunk: Trunk, config: Mapping[str, Any], path: str) -> RotaryTables | None:
    """Returns the rotary encoding that a checkpoint stores, or that the name of its model implies; None if neither.

    Args:
        trunk: the tensors of the vision transformer in the checkpoint.
        config: configuration of the checkpoint, which may name the model.
        path: file name for error messages.
    """
    for name, tensor in trunk.matching(r"rope_embed\.periods").items():
        if tensor.ndim == 1 and len(tensor):
            periods = to_float32(tensor, label := f"{path}: {sanitize(name)}")
            if (smallest := float(periods.min())) < MIN_PERIOD:
                raise InputError(f"{label} has a period of {smallest:.2g}, which is too small; is the file damaged?")
            return RotaryTables(
                "rope_dino", f"rotary, {len(periods)} period{'s' * (len(periods) > 1)} per axis", periods=periods
            )
    if (mixed := _mixed_frequencies(trunk, path)) is not None:
        depth, heads, _, pairs = mixed.shape
        text = f"rotary, learned mixed frequencies of {depth * heads * pairs} channel pairs in {depth} layers"
        return RotaryTables("rope_mixed", text, frequencies=mixed)
    for name, cosines in trunk.matching("freqs_cos").items():
        sines = trunk.tensors.get(name.removesuffix("cos") + "sin")
        axial = _axial_frequencies(cosines, sines) if sines is not None else None
        if axial is not None:
            text = f"rotary, fixed: stored as {sanitize(name)}, which rotates {axial.shape[-1]} channel pairs"
            return RotaryTables("rope", text, frequencies=axial)
    if stored := trunk.matching(r"freqs_cos|freqs_cis|freqs|inv_freq|rope\.bands"):
        return RotaryTables("rope", f"rotary, fixed: stored as {sanitize(next(iter(stored)))}")
    return _implied_by_name(trunk, config)


def _implied_by_name(trunk: Trunk, config: Mapping[str, Any]) -> RotaryTables | None:
    names = [trunk.format, *(sanitize(config.get(key, "")) for key in ("model_type", "architecture"))]
    for encoding, pattern in MODEL_NAMES.items():
        if name := next((name for name in names if re.search(pattern, name)), None):
            return RotaryTables(encoding, f"rotary, implied by the model name {name}; not stored")
    return None


def _mixed_frequencies(trunk: Trunk, path: str) -> Tensor | None:
    """Returns the learned frequencies (depth, H|1, 2, pairs) of RoPE-Mixed, row before column; None if there are none.

    H|1 is 1 if heads are not stored separately. timm has one tensor for all blocks, the authors' code one per block.

    Args:
        trunk: the tensors of the vision transformer in the checkpoint.
        path: file name for error messages.
    """
    layers = []
    for name, tensor in trunk.matching("freqs").items():
        if tensor.ndim in (2, 3, 4) and tensor.shape[0] == 2 and tensor.numel():
            # (2, depth, H, d/2), (2, depth, H·d/2) or, for one block, (2, H·d/2); column before row
            layer = to_float32(tensor, f"{path}: {sanitize(name)}")
            layer = layer[:, None] if layer.ndim == 2 else layer
            layer = layer[:, :, None] if layer.ndim == 3 else layer
            layers.append(layer.flip(0).permute(1, 2, 0, 3))  # row before column
    return torch.cat(layers) if layers and len({layer.shape[1:] for layer in layers}) == 1 else None


def _axial_frequencies(cosines: Tensor, sines: Tensor) -> Tensor | None:
    """Returns the rotation in radians per row and per column, (1, 1, 2, pairs), of a stored rotary buffer, as in EVA-02.

    ``cosines`` and ``sines`` are (N, d), one row per position. A step of one row or column is assumed to rotate by
    less than π. None if the buffer is not a pure rotation over its grid, or if the grid has a single row or column.
    """
    grid = grid_from_axial_angles(cosines)
    if grid is None or min(grid) < 2 or sines.shape != cosines.shape or not sines.is_floating_point():
        return None
    if torch.equal(cosines[:, ::2], cosines[:, 1::2]):  # both channels of a pair are stored
        cosines, sines = cosines[:, ::2], sines[:, ::2]
    rotations = torch.complex(cosines.double(), sines.double()).unflatten(0, grid)  # (R, C, pairs)
    steps = torch.stack([rotations[1, 0], rotations[0, 1]]) / rotations[0, 0]
    frequencies = steps.angle()
    rows, columns = (torch.arange(side, dtype=torch.float64)[:, None] for side in grid)
    angles = (rows * frequencies[0])[:, None] + columns * frequencies[1]
    expected = torch.polar(torch.ones_like(angles), angles) * rotations[0, 0]
    return frequencies.float()[None, None] if (expected - rotations).abs().max() < TOLERANCE else None


def rotary_grid_hints(trunk: Trunk) -> list[GridHint]:
    """Returns the grids that stored buffers of rotary encodings (coordinates, cosines) imply, with the buffers' names.

    ``trunk`` holds the tensors of the vision transformer in the checkpoint.
    """
    grids = []
    for name, column in trunk.matching("freqs_t_x").items():
        row = trunk.tensors.get(name[:-1] + "y")
        grids.append((grid_from_coordinates(row, column) if row is not None else None, name))
    grids += [(grid_from_axial_angles(cosines), name) for name, cosines in trunk.matching("freqs_cos").items()]
    return grid_hints(grids)

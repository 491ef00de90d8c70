"""Rotary positions in a checkpoint: learned frequencies, periods, and buffers of angles. Most store nothing at all."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vitpos.errors import UserError
from vitpos.interop.grids import Clue, clues, of_axial_angles, of_coordinates
from vitpos.interop.naming import Trunk
from vitpos.interop.relative_tables import numbers
from vitpos.interop.sanitize import shown

NAMES = {"rope_dino": r"(?i)dinov3", "rope": r"(?i)(^|[_-])rope(?!.*mixed)|eva-?02(?!_enormous)|pe_(core|lang|spatial)"}

NEAR = 0.01  # the largest difference that is rounding
SHORTEST = 1e-4  # a period far below the step between two patches


@dataclass(frozen=True)
class Rotations:
    """What a checkpoint stores of its rotary encoding."""

    encoding: str  # ours of the same kind
    said: str
    frequencies: Tensor | None = None  # (depth, H|1, 2, pairs), radians a patch, row before column
    periods: Tensor | None = None  # (d/4,), of coordinates from −1 to 1 (DINOv3)


def find_rotations(trunk: Trunk, about: Mapping[str, Any], path: str) -> Rotations | None:
    """The rotary encoding of which the checkpoint stores something, or which the model's name has; None for neither."""
    for name, tensor in trunk.ending(r"rope_embed\.periods").items():
        if tensor.ndim == 1 and len(tensor):
            periods = numbers(tensor, what := f"{path}: {shown(name)}")
            if (least := float(periods.min())) < SHORTEST:
                raise UserError(f"{what} has a period of {least:.2g}, which is no wave; is the file damaged?")
            return Rotations("rope_dino", f"rotary, {len(periods)} periods for each axis", periods=periods)
    if (mixed := _mixed(trunk, path)) is not None:
        depth, heads, _, pairs = mixed.shape
        said = f"rotary, learned mixed frequencies of {depth * heads * pairs} pairs of channels in {depth} layers"
        return Rotations("rope_mixed", said, frequencies=mixed)
    for name, cosines in trunk.ending("freqs_cos").items():
        sines = trunk.tensors.get(name.removesuffix("cos") + "sin")
        turned = _turned(cosines, sines) if sines is not None else None
        if turned is not None:
            said = f"rotary, fixed: {shown(name)} is stored, which turns {turned.shape[-1]} pairs of channels"
            return Rotations("rope", said, frequencies=turned)
    stored = trunk.ending(r"freqs_cos|freqs_cis|freqs|inv_freq|rope\.bands")
    return (
        Rotations("rope", f"rotary, fixed: {shown(next(iter(stored)))} is stored") if stored else _by_name(trunk, about)
    )


def _by_name(trunk: Trunk, about: Mapping[str, Any]) -> Rotations | None:
    """The rotary encoding of models that are known to have one and store nothing of it."""
    names = [trunk.naming, *(shown(about.get(key, "")) for key in ("model_type", "architecture"))]
    for encoding, pattern in NAMES.items():
        if name := next((name for name in names if re.search(pattern, name)), None):
            return Rotations(encoding, f"rotary, as {name} has it; nothing of it is stored")
    return None


def _mixed(trunk: Trunk, path: str) -> Tensor | None:
    """Learned frequencies of columns and rows (RoPE-Mixed): timm's, all layers and heads at once, or the release's."""
    layers = []
    for name, tensor in trunk.ending("freqs").items():
        if tensor.ndim in (2, 3, 4) and tensor.shape[0] == 2 and tensor.numel():
            # (2, depth, H, d/2), (2, depth, H·d/2) or, of one block, (2, H·d/2)
            layer = numbers(tensor, f"{path}: {shown(name)}")
            layer = layer[:, None] if layer.ndim == 2 else layer
            layer = layer[:, :, None] if layer.ndim == 3 else layer
            layers.append(layer.flip(0).permute(1, 2, 0, 3))  # row before column
    return torch.cat(layers) if layers and len({layer.shape[1:] for layer in layers}) == 1 else None


def _turned(cosines: Tensor, sines: Tensor) -> Tensor | None:
    """(1, 1, 2, pairs), by how much a step turns each pair of channels in an axial buffer (N, d), as in EVA-02.

    A step is taken to turn by less than half a circle. None where the buffer is not waves all over its grid, or where
    that has a single row or column.
    """
    grid = of_axial_angles(cosines)
    if grid is None or min(grid) < 2 or sines.shape != cosines.shape or not sines.is_floating_point():
        return None
    if torch.equal(cosines[:, ::2], cosines[:, 1::2]):  # both channels of a pair
        cosines, sines = cosines[:, ::2], sines[:, ::2]
    places = torch.complex(cosines.double(), sines.double()).unflatten(0, grid)  # (R, C, pairs)
    steps = torch.stack([places[1, 0], places[0, 1]]) / places[0, 0]
    turned = steps.angle()
    rows, columns = (torch.arange(side, dtype=torch.float64)[:, None] for side in grid)
    angles = (rows * turned[0])[:, None] + columns * turned[1]
    fits = (torch.polar(torch.ones_like(angles), angles) * places[0, 0] - places).abs().max() < NEAR
    return turned.float()[None, None] if fits else None


def rotary_grids(trunk: Trunk) -> list[Clue]:
    """Grids that buffers of a rotary encoding can only be made for."""
    found = []
    for name, column in trunk.ending("freqs_t_x").items():
        row = trunk.tensors.get(name[:-1] + "y")
        found.append((of_coordinates(row, column) if row is not None else None, name))
    found += [(of_axial_angles(cosines), name) for name, cosines in trunk.ending("freqs_cos").items()]
    return clues(found)

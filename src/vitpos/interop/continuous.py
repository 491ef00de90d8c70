"""Networks from offset to bias in a checkpoint (Swin-v2, timm's ``rel_pos``), evaluated on the offsets of their window."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from vitpos.interop.grids import Clue, Grid, of_index, of_window
from vitpos.interop.naming import Trunk
from vitpos.interop.relative_tables import COORDINATES, INDEX, LARGEST, half, numbers
from vitpos.interop.sanitize import shown

NETWORK = r"(cpb_mlp\.2|continuous_position_bias_mlp\.2|(shared_)?rel_pos\.mlp\.fc2)\.weight"
ATTENTION = r"att(n|ention)\b|shared_rel_pos"  # networks elsewhere give vectors of places
STAGE = r"(?:layers|stages)\.(\d+)\.blocks\."
WORK = 1 << 26  # hidden units times offsets, far above the 512 · 47² of the largest window in use


def networks(trunk: Trunk) -> dict[str, Tensor]:
    """The last weights (H, width) of the networks that give a bias for an offset, by name, in the order of layers."""
    return {name: tensor for name, tensor in trunk.ending(NETWORK).items() if tensor.ndim == 2}


def network_tables(
    trunk: Trunk, about: Mapping[str, Any], *, asked: Grid | None, picture: Clue | None, path: str
) -> dict[str, Tensor]:
    """What the networks say of each offset, (2R−1, 2C−1, H) by name; those whose window nothing tells are left out.

    Swin-v2's give 16·sigmoid(network(Δ)) with Δ = sign·log2(1 + 8|offset|/(M − 1))/3 for each axis, M the side of the
    window in pretraining, which is the window itself where no configuration says otherwise. timm's with a last bias
    give the network's answer to sign·ln(1 + |offset|). Inputs that are stored are taken as they are.
    """
    found = {}
    for name in networks(trunk):
        stem = name.removesuffix("2.weight")
        first = stem + ("1" if stem.endswith("fc") else "0")
        parts = [trunk.tensors.get(key) for key in (f"{first}.weight", f"{first}.bias", name)]
        weights = [numbers(part, f"{path}: {shown(name)}") for part in parts if part is not None]
        inputs = _inputs(trunk, about, stem, asked, picture)
        if inputs is None or len(weights) < 3 or not re.search(ATTENTION, name):
            continue
        into, shift, out = weights
        last = trunk.tensors.get(f"{stem}2.bias")
        if not _fit(into, shift, out, inputs) or (last is not None and last.shape != out.shape[:1]):
            continue
        values = F.relu(inputs @ into.mT + shift) @ out.mT
        key = stem.removesuffix("fc").removesuffix(".")
        found[key] = 16 * values.sigmoid() if last is None else numbers(values + last, f"{path}: {shown(key)}")
    return found


def _fit(into: Tensor, shift: Tensor, out: Tensor, inputs: Tensor) -> bool:
    """Whether these are the weights of a network from two numbers to heads, of sensible work."""
    hidden = out.shape[1]
    fits = into.shape == (hidden, 2) and shift.shape == (hidden,) and out.numel() > 0
    return fits and hidden * inputs.shape[:2].numel() <= WORK


def _inputs(
    trunk: Trunk, about: Mapping[str, Any], stem: str, asked: Grid | None, picture: Clue | None
) -> Tensor | None:
    """(2R−1, 2C−1, 2), what a network is given for each offset; None where its window is unknown."""
    beside = re.sub(r"\w+\.(fc)?$", "", stem)
    stored = _stored(trunk, beside)
    if stored is not None and stored.abs().max() <= LARGEST:  # of one row or column, timm's are NaN
        return stored
    index = trunk.tensors.get(beside + INDEX)
    window = half(stored.shape[:2]) if stored is not None else of_index(index) if index is not None else None
    window = window or _window(about, stem, asked, picture)
    if window is None or _offsets(window) > WORK // 64:
        return None
    rows, columns = (torch.arange(1 - side, side, dtype=torch.float32) for side in window)
    offsets = torch.stack(torch.meshgrid(rows, columns, indexing="ij"), -1)
    if f"{stem}2.bias" in trunk.tensors:
        return offsets.sign() * offsets.abs().log1p()
    spans = torch.tensor([max(side - 1, 1) for side in _pretrained(about, stem) or window])
    return offsets.sign() * torch.log2(1 + 8 * offsets.abs() / spans) / 3


def _stored(trunk: Trunk, beside: str) -> Tensor | None:
    """(2R−1, 2C−1, 2), the inputs that the checkpoint keeps beside a network."""
    name = trunk.first(beside + kept for kept in (COORDINATES, "rel_coords_log"))
    table = trunk.tensors[name] if name else torch.zeros(0)
    if not table.is_floating_point() or table.ndim not in (3, 4) or not table.numel():
        return None
    whole = table.shape[-1] == 2 and (table.ndim == 3 or len(table) == 1) and half(table.shape[-3:-1]) is not None
    return table.float().reshape(table.shape[-3:]) if whole else None


def _offsets(window: Grid) -> int:
    return (2 * window[0] - 1) * (2 * window[1] - 1)


def _window(about: Mapping[str, Any], stem: str, asked: Grid | None, picture: Clue | None) -> Grid | None:
    """The window of a layer that stores none: all of the picture, or what was asked or configured, within its stage."""
    stage = re.search(STAGE, stem)
    if stage is None and "cpb_mlp" not in stem:
        return asked or (picture.grid if picture else None)
    configured = of_window(about)
    window = asked or (configured.grid if configured else None)
    if window is None or picture is None or stage is None:
        return window
    rows, columns = (max(side >> min(int(stage[1]), 16), 1) for side in picture.grid)
    return min(window[0], rows), min(window[1], columns)


def _pretrained(about: Mapping[str, Any], stem: str) -> Grid | None:
    """The window in which a layer was trained first, where a configuration says it."""
    inner, stage = about.get("model_args"), re.search(STAGE, stem)
    for level in (about, inner if isinstance(inner, Mapping) else {}):
        sides = level.get("pretrained_window_sizes")
        if isinstance(sides, (list, tuple)) and stage and int(stage[1]) < len(sides):
            side = sides[int(stage[1])]
            return (side, side) if type(side) is int and side > 1 else None
    return None

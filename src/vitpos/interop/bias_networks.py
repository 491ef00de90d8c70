"""Finds networks from offset to attention bias in a checkpoint, as in Swin-v2, and evaluates them to bias tables."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from vitpos.interop.architecture import Trunk
from vitpos.interop.grids import Grid, GridHint, grid_from_relative_index, window_from_config
from vitpos.interop.relative_tables import COORDINATES, INDEX, grid_from_offsets
from vitpos.interop.untrusted_files import MAX_MAGNITUDE, to_float32
from vitpos.printable import sanitize

NETWORK = r"(cpb_mlp\.2|continuous_position_bias_mlp\.2|(shared_)?rel_pos\.mlp\.fc2)\.weight"
IN_ATTENTION = r"att(n|ention)\b|shared_rel_pos"  # networks elsewhere give vectors, not biases
STAGE = r"(?:layers|stages)\.(\d+)\.blocks\."
MAX_OFFSETS = 1 << 16  # of a window, those of 128×128 positions
MAX_RESULTS = 1 << 22  # biases of all networks together
MAX_WORK = 1 << 26  # hidden units × offsets, far above the 512 · 47² of the largest window in use


def find_bias_networks(trunk: Trunk) -> dict[str, Tensor]:
    """Returns name → last weight (H, hidden units) of each MLP from offset to bias (Swin-v2, timm's ``rel_pos``).

    ``trunk`` holds the tensors of the vision transformer in the checkpoint.
    """
    return {name: tensor for name, tensor in trunk.matching(NETWORK).items() if tensor.ndim == 2}


def evaluate_bias_networks(
    trunk: Trunk, config: Mapping[str, Any], *, requested: Grid | None, image: GridHint | None, path: str
) -> dict[str, Tensor]:
    """Evaluates the MLPs from offset to bias of a checkpoint; returns MLP name → bias at each offset (2R−1, 2C−1, H).

    The offsets are those inside the attention window (R, C) of the MLP. MLPs whose window is unknown are left out.

    Swin-v2: 16·sigmoid(MLP(Δ)) with Δ = sign·log2(1 + 8|offset|/(M − 1))/3 per axis, M the side of the window in
    pretraining, by default the window itself. timm's MLPs whose last layer has a bias: MLP(sign·ln(1 + |offset|)).
    Inputs that are stored beside an MLP are used as they are.

    Args:
        trunk: the tensors of the vision transformer in the checkpoint.
        config: configuration of the checkpoint, which may give the window.
        requested: the window given by the caller, if any.
        image: the grid of the whole image, if known.
        path: file name for error messages.
    """
    tables = {}
    left = MAX_RESULTS
    for name, out in find_bias_networks(trunk).items():
        stem = name.removesuffix("2.weight")
        first = stem + ("1" if stem.endswith("fc") else "0")
        weight, bias, out_bias = (
            trunk.tensors.get(key) for key in (f"{first}.weight", f"{first}.bias", f"{stem}2.bias")
        )
        inputs = _network_inputs(trunk, config, stem, requested, image)
        if weight is None or bias is None or inputs is None or not re.search(IN_ATTENTION, name):
            continue
        if not _is_network(weight, bias, out, out_bias, inputs):
            continue
        left -= len(out) * inputs.shape[:2].numel()
        if left < 0:
            break
        weight, bias, out = (to_float32(part, f"{path}: {sanitize(name)}") for part in (weight, bias, out))
        values = F.relu(inputs @ weight.mT + bias) @ out.mT
        key = stem.removesuffix("fc").removesuffix(".")
        label = f"{path}: {sanitize(key)}"
        tables[key] = 16 * values.sigmoid() if out_bias is None else to_float32(values + out_bias, label)
    return tables


def _is_network(weight: Tensor, bias: Tensor, out: Tensor, out_bias: Tensor | None, inputs: Tensor) -> bool:
    """Returns whether the weights form an MLP with two inputs and H outputs that is small enough to evaluate.

    Args:
        weight, bias: first layer, (hidden, 2) and (hidden,) in such an MLP.
        out, out_bias: last layer, (H, hidden) and (H,), the latter if it has one.
        inputs: (2R−1, 2C−1, 2), one input per offset.
    """
    hidden = out.shape[1]
    fits = weight.shape == (hidden, 2) and bias.shape == (hidden,) and out.numel() > 0
    fits = fits and (out_bias is None or out_bias.shape == out.shape[:1])
    return fits and hidden * inputs.shape[:2].numel() <= MAX_WORK


def _network_inputs(
    trunk: Trunk, config: Mapping[str, Any], stem: str, requested: Grid | None, image: GridHint | None
) -> Tensor | None:
    """Returns the inputs (2R−1, 2C−1, 2), one per offset, of an MLP from offset to bias; None if its window is unknown.

    The window is the attention window (R, C) in which the MLP is used.

    Args:
        trunk: the tensors of the vision transformer in the checkpoint.
        config: configuration of the checkpoint, which may give the window.
        stem: start of the names of the MLP's tensors, such as ``layers.0.blocks.0.attn.cpb_mlp.``.
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
    if window is None or (2 * window[0] - 1) * (2 * window[1] - 1) > MAX_OFFSETS:
        return None
    rows, columns = (torch.arange(1 - side, side, dtype=torch.float32) for side in window)
    offsets = torch.stack(torch.meshgrid(rows, columns, indexing="ij"), -1)
    if f"{stem}2.bias" in trunk.tensors:
        return offsets.sign() * offsets.abs().log1p()
    spans = torch.tensor([max(side - 1, 1) for side in _pretraining_window(config, stem) or window])
    return offsets.sign() * torch.log2(1 + 8 * offsets.abs() / spans) / 3


def _stored_inputs(trunk: Trunk, module: str) -> Tensor | None:
    """Returns the inputs (2R−1, 2C−1, 2) that a checkpoint stores beside an MLP from offset to bias; None if absent.

    Args:
        trunk: the tensors of the vision transformer in the checkpoint.
        module: start of the name of the stored inputs, such as ``layers.0.blocks.0.attn.``.
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
    """Returns the attention window (R, C) of an MLP from offset to bias, from configuration and caller; None if unknown.

    It is used if the checkpoint does not store the window. It is the requested window if given, otherwise the image's
    grid for global attention and ``window_size`` of the configuration for Swin. In Swin it is reduced to the grid of
    the MLP's stage, if that is smaller.

    Args:
        config: configuration of the checkpoint.
        stem: start of the names of the MLP's tensors, such as ``layers.0.blocks.0.attn.cpb_mlp.``.
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
    """Returns the attention window (R, C) with which a Swin-v2 stage was pretrained; None if the configuration has none.

    Args:
        config: configuration of the checkpoint; its ``pretrained_window_sizes`` has one side per stage.
        stem: start of a tensor name with the number of the stage, such as ``layers.0.blocks.0.``.
    """
    nested, stage = config.get("model_args"), re.search(STAGE, stem)
    for level in (config, nested if isinstance(nested, Mapping) else {}):
        sides = level.get("pretrained_window_sizes")
        if isinstance(sides, (list, tuple)) and stage and int(stage[1]) < len(sides):
            side = sides[int(stage[1])]
            return (side, side) if type(side) is int and side > 1 else None
    return None

"""Inspects encodings of the offset between query and key: bias tables, row and column vectors, rotary frequencies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from vitpos.encodings.base import Geometry, PositionEncoding
from vitpos.encodings.protocols import HasFrequencies
from vitpos.inspection.section import Figure, Section
from vitpos.inspection.table_stats import cosine_similarity
from vitpos.positions import Positions

Decomposed = Mapping[str, tuple[Tensor, Tensor]]


def rotary_frequencies(encoding: PositionEncoding) -> Tensor | None:
    """Returns the rotary frequencies (depth, H, pairs, 2): radians per row and per column for each pair of channels.

    Frequencies refer to the training grid; if the encoding is a sum (``rope + rope_mixed``), the frequencies of its parts
    are concatenated over pairs. None if the encoding rotates no pairs of channels.
    """
    each = [part.frequencies() for part in encoding.parts if isinstance(part, HasFrequencies)]
    known = [frequencies.float().cpu() for frequencies in each if frequencies is not None]
    return torch.cat(known, 2) if known else None


def offset_biases(
    encoding: PositionEncoding, geometry: Geometry, *, train_grid: tuple[int, int] | None = None
) -> Tensor | None:
    """Returns the bias (depth, H, 2R − 1, 2C − 1) that the encoding adds to the logits at each offset, query minus key.

    Entry [0, 0] is for −(R − 1) rows and −(C − 1) columns. In a sum of encodings, all biases that depend on the
    offset alone (a table, a network, a slope) are added; −∞ where a head masks the pair. None if there is no such bias
    or all are 0, as in a table that is initialized with zeros.

    Args:
        geometry: sizes of the model: the grid (R, C) of patches, depth, number of heads and width.
        train_grid: grid on which the encoding was trained, if it differs from the grid of ``geometry``.
    """
    grid = geometry.grid
    relative = [part for part in encoding.parts if "translation_invariant" in part.traits and "bias" in part.hooks]
    if not relative:
        return None
    device = next((parameter.device for parameter in encoding.parameters()), torch.device("cpu"))
    pos = Positions.from_grid(grid, train_grid=train_grid or grid, device=device)
    zeros = torch.zeros(1, geometry.heads, grid[0] * grid[1], geometry.dim // geometry.heads, device=device)
    layers = []
    with torch.inference_mode():
        for layer in range(geometry.depth):
            biases = [part.bias(zeros, zeros, pos, layer) for part in relative]
            known = torch.stack([bias.expand(1, geometry.heads, -1, -1)[0] for bias in biases if bias is not None])
            layers.append(known.sum(0))
    table = _by_offset(torch.stack(layers).float().cpu(), grid)
    return table if table.any() else None


def _by_offset(pairs: Tensor, grid: tuple[int, int]) -> Tensor:
    """Returns biases by offset (…, 2R − 1, 2C − 1) from biases by pair (…, N, N), taking one pair per offset."""
    rows, columns = (torch.arange(1 - side, side) for side in grid)
    query = rows.clamp_min(0)[:, None] * grid[1] + columns.clamp_min(0)
    key = (-rows).clamp_min(0)[:, None] * grid[1] + (-columns).clamp_min(0)
    return pairs[..., query, key]


def inspect_offsets(
    biases: Mapping[str, Tensor], frequencies: Tensor | None = None, decomposed: Decomposed | None = None
) -> Section:
    """Returns the section ``offsets``: numbers and figures of bias tables, rotary frequencies and decomposed tables.

    biases: for each layer the fraction of the variance of its bias table that distance, row and column explain
    (:func:`bias_numbers`). frequencies: the tensor given, as nested lists. Decomposed tables give figures only.

    Args:
        biases: (H, 2R − 1, 2C − 1) by layer.
        frequencies: (depth, H, pairs, 2), radians per row and column.
        decomposed: by layer, a vector per row offset (2R − 1, d) and per column offset (2C − 1, d), as in SAM.
    """
    numbers: dict[str, Any] = {}
    figures = []
    if biases:
        numbers["biases"] = {name: bias_numbers(table) for name, table in biases.items()}
        rows = {name: table.numpy() for name, table in biases.items()}
        caption = "Bias added to the logit at each offset, by layer (rows) and head (columns); gray: masked."
        figures.append(Figure("biases", "maps", {"rows": rows, "label": "bias of the logit", "signed": True}, caption))
    if frequencies is not None:
        numbers["frequencies"] = frequencies.tolist()
        caption = "Rotation of each pair of channels per row and per column, in radians; one color per head."
        figures.append(Figure("frequencies", "frequencies", {"frequencies": frequencies.numpy()}, caption))
    for axis, name in enumerate(("rows", "columns") if decomposed else ()):
        maps = {
            layer: cosine_similarity(pair[axis].double())[None].numpy() for layer, pair in (decomposed or {}).items()
        }
        data = {"rows": maps, "label": "cosine similarity", "signed": True, "numbered": False}
        caption = f"Cosine similarity of the vectors of every two offsets in {name}, by layer."
        figures.append(Figure(f"decomposed-{name}", "maps", data, caption))
    return Section("offsets", numbers, tuple(figures))


def bias_numbers(table: Tensor) -> dict[str, Any]:
    """Returns which fraction of the variance of a bias table (H, 2R − 1, 2C − 1) distance, row and column explain.

    Entries are lists with one number per head, except noise and diversity; every pair of positions counts once. std:
    standard deviation of the biases, in logits. by_distance, by_row, by_column: fraction of the variance, 0 to 1,
    explained by the distance, by |Δrow| alone and by |Δcolumn| alone. antisymmetric: fraction that changes sign when
    query and key are exchanged. noise: by_distance, by_row, by_column and antisymmetric → the fraction expected for
    a table of white noise, mean over heads. diversity: 1 − mean correlation between two heads, one number; None for one
    head. Masked offsets (−∞) are left out.
    """
    table = table.double()
    rows, columns = ((side + 1) // 2 for side in table.shape[1:])
    down, across = (torch.arange(1 - side, side, dtype=torch.float64) for side in (rows, columns))
    pairs = (rows - down.abs())[:, None] * (columns - across.abs())  # number of pairs of positions at each offset
    weights = pairs * table.isfinite()  # (H, 2R − 1, 2C − 1)
    values = table.where(table.isfinite(), torch.zeros(()).double())
    centered = values - _weighted_mean(values, weights)
    variance = _weighted_mean(centered.square(), weights).flatten()
    distance = (down[:, None].square() + across.square()).flatten()
    groups = {
        "by_distance": distance.unique(return_inverse=True)[1],
        "by_row": down.abs().long()[:, None].expand(-1, len(across)).flatten(),
        "by_column": across.abs().long().expand(len(down), -1).flatten(),
    }
    total = weights.sum((1, 2), keepdim=True).clamp_min(1)
    parts = {name: _explained_variance(centered * weights, weights, group) for name, group in groups.items()}
    both_ways = weights.flip(1, 2).sign()  # whether the opposite offset is not masked
    parts["antisymmetric"] = (((values - values.flip(1, 2)) / 2).square() * weights * both_ways / total).sum((1, 2))
    mean_variance = (weights / total).square().sum((1, 2))  # of the mean of white noise of variance 1
    noise = {name: _noise_variance(weights, group) - mean_variance for name, group in groups.items()}
    different = (down[:, None] != 0) | (across != 0)
    noise["antisymmetric"] = (weights * both_ways * different / total).sum((1, 2)) / 2
    return {
        "std": variance.sqrt().tolist(),
        **{name: (part / variance.clamp_min(1e-30)).tolist() for name, part in parts.items()},
        "noise": {name: float((part / (1 - mean_variance).clamp_min(1e-30)).mean()) for name, part in noise.items()},
        "diversity": _head_diversity(centered, weights),
    }


def _weighted_mean(values: Tensor, weights: Tensor) -> Tensor:
    """Returns the weighted mean (H, 1, 1) of ``values`` (H, rows, columns), with ``weights`` of the same shape."""
    return (values * weights).sum((1, 2), keepdim=True) / weights.sum((1, 2), keepdim=True).clamp_min(1)


def _explained_variance(weighted: Tensor, weights: Tensor, groups: Tensor) -> Tensor:
    """Returns the variance (H,) explained by groups of offsets: the weighted variance of the means over groups.

    Args:
        weighted: centered values times their weights, (H, rows, columns).
        weights: (H, rows, columns), number of pairs of positions at each offset; 0 where masked.
        groups: (rows · columns,), group number of each offset.
    """
    sums, sizes = _group_sums(weighted, groups), _group_sums(weights, groups)
    return (sums.square() / sizes.clamp_min(1)).sum(1) / sizes.sum(1).clamp_min(1)


def _noise_variance(weights: Tensor, groups: Tensor) -> Tensor:
    """Returns the expected weighted mean square (H,) of means over groups of offsets, for white noise of variance 1.

    Args:
        weights: (H, rows, columns), number of pairs of positions at each offset; 0 where masked.
        groups: (rows · columns,), group number of each offset.
    """
    squares, sizes = _group_sums(weights.square(), groups), _group_sums(weights, groups)
    return (squares / sizes.clamp_min(1)).sum(1) / sizes.sum(1).clamp_min(1)


def _group_sums(values: Tensor, groups: Tensor) -> Tensor:
    """Returns the sum (H, G) of ``values`` (H, rows, columns) over each of G groups of offsets.

    ``groups`` (rows · columns,) is the group number of each offset.
    """
    return values.new_zeros(len(values), int(groups.max()) + 1).index_add_(1, groups, values.flatten(1))


def _head_diversity(centered: Tensor, weights: Tensor) -> float | None:
    if len(centered) < 2:
        return None
    shared = weights.amin(0)  # offsets that no head masks
    correlation = cosine_similarity((centered * shared.sqrt()).flatten(1))
    return 1 - float(correlation[~torch.eye(len(correlation), dtype=torch.bool)].mean())

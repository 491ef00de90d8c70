"""What an encoding says of an offset, whatever the patches show: rotary frequencies and tables of biases."""

from __future__ import annotations

import torch
from torch import Tensor

from vitpos.encodings.base import Geometry, PositionEncoding, parts
from vitpos.encodings.rotary import Rotary
from vitpos.positions import Positions


def rotary_frequencies(encoding: PositionEncoding) -> Tensor | None:
    """(depth, H, pairs, 2): the frequency plane of rotations, by how much a step down and a step right turn each pair.

    In radians per patch of the training grid, for each pair of channels of each layer and head; pairs of several
    rotations follow each other. None for encodings that do not turn pairs of channels.
    """
    waves = [part.waves() for part in parts(encoding) if isinstance(part, Rotary)]
    found = [wave.float().cpu() for wave in waves if wave is not None]
    return torch.cat(found, 2) if found else None


def offset_biases(
    encoding: PositionEncoding, geometry: Geometry, *, span: tuple[int, int] | None = None
) -> Tensor | None:
    """(depth, H, 2R − 1, 2C − 1): what is added to the logits at each offset, from −(R − 1), −(C − 1) in the corner.

    An offset is the place of the query less that of the key. The sum of all parts whose bias depends on the offset alone
    (a stored table, a network, a slope; −∞ where a head does not see), on the model's grid, fitted into the ``span`` that
    was trained on if that is another. None if no part has such a bias, or all of it is 0 as in tables that start there.
    """
    grid = geometry.grid
    speaking = [part for part in parts(encoding) if "relative" in part.traits and part.acts("bias") and not part.turns]
    if not speaking:
        return None
    device = next((parameter.device for parameter in encoding.parameters()), torch.device("cpu"))
    pos = Positions.of(grid, fit=span or grid, device=device)
    silent = torch.zeros(1, geometry.heads, grid[0] * grid[1], geometry.dim // geometry.heads, device=device)
    layers = []
    with torch.inference_mode():
        for layer in range(geometry.depth):
            biases = [part.bias(silent, silent, pos, layer) for part in speaking]
            spoken = torch.stack([bias.expand(1, geometry.heads, -1, -1)[0] for bias in biases if bias is not None])
            layers.append(spoken.sum(0))
    table = _by_offset(torch.stack(layers).float().cpu(), grid)
    return table if table.any() else None


def _by_offset(pairs: Tensor, grid: tuple[int, int]) -> Tensor:
    """What pairs of places (…, N, N) have that depends on their offset alone: (…, 2R − 1, 2C − 1).

    Of the pairs with the same offset one is read, whose query or key lies in the first row, and in the first column.
    """
    rows, columns = (torch.arange(1 - side, side) for side in grid)
    query = rows.clamp_min(0)[:, None] * grid[1] + columns.clamp_min(0)
    key = (-rows).clamp_min(0)[:, None] * grid[1] + (-columns).clamp_min(0)
    return pairs[..., query, key]

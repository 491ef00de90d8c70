"""Small inputs for tests of single encodings: a grid that is not square, random parameters, queries and keys."""

import math

import torch

from vitpos.encodings import ENCODINGS
from vitpos.encodings.base import Geometry

GRID = (3, 5)
CELLS = [(row, column) for row in range(GRID[0]) for column in range(GRID[1])]
N, HEADS, WIDTH = len(CELLS), 2, 16


def build(spec, *, num_prefix=0, width=WIDTH, grid=GRID, dtype=torch.float64, scale=0.5):
    """Returns an encoding whose parameters are normal with a standard deviation of ``scale``."""
    torch.manual_seed(0)
    encoding = ENCODINGS.build(spec, Geometry(HEADS * width, HEADS, 2, grid, num_prefix)).to(dtype)
    with torch.no_grad():
        for parameter in encoding.parameters():
            parameter.copy_(torch.randn_like(parameter) * scale)
    return encoding


def queries_and_keys(tokens=N, *, batch=2, heads=HEADS, width=WIDTH, dtype=torch.float64):
    """Returns q and k (batch, heads, tokens, width)."""
    generator = torch.Generator().manual_seed(1)
    return torch.randn(2, batch, heads, tokens, width, generator=generator, dtype=dtype).unbind()


def interpolate(table, at):
    """e[p] for a count p, as the papers write it: between the whole counts around it."""
    at = min(max(at, 0.0), len(table) - 1.0)
    low = math.floor(at)
    high = min(low + 1, len(table) - 1)
    return (1 - (at - low)) * table[low] + (at - low) * table[high]

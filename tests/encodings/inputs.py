"""Small inputs for tests of single encodings: a grid that is not square, random parameters, queries and keys."""

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


def queries_and_keys(tokens=N, *, width=WIDTH, dtype=torch.float64):
    """Returns q and k (2, HEADS, tokens, width)."""
    generator = torch.Generator().manual_seed(1)
    return torch.randn(2, 2, HEADS, tokens, width, generator=generator, dtype=dtype).unbind()

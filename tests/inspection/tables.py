"""Position tables with known properties, and degenerate ones."""

import math

import torch

from vitpos.inspection.table_stats import grid_coordinates

GRID = (9, 13)


def noise(grid=GRID, width=64, seed=0):
    """(R, C, D): white noise with standard deviation 1."""
    return torch.randn(*grid, width, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def plane(grid=GRID, width=64, sigma=0.0, seed=0):
    """(R, C, D): row and column embedded by a random orthogonal map, plus white noise."""
    generator = torch.Generator().manual_seed(1000 + seed)
    basis = torch.linalg.qr(torch.randn(width, width, dtype=torch.float64, generator=generator))[0][:2]
    return (grid_coordinates(grid) @ basis).unflatten(0, grid) + sigma * noise(grid, width, seed)


def additive(grid=GRID, width=64, sigma=0.3, seed=0):
    """(R, C, D): sum of a random vector per row and one per column, plus noise: no dependence on distance."""
    generator = torch.Generator().manual_seed(2000 + seed)
    row, column = (torch.randn(side, width, dtype=torch.float64, generator=generator) for side in grid)
    return row[:, None] + column + sigma * noise(grid, width, seed)


def bordered(grid=GRID, width=64, seed=0):
    """(R, C, D): white noise plus one vector shared by all border positions."""
    table = noise(grid, width, seed)
    border = torch.ones(grid, dtype=torch.bool)
    border[1:-1, 1:-1] = False
    return table + border[..., None] * torch.linspace(-1.0, 1.0, width, dtype=torch.float64)


def smooth(grid=GRID, width=64, length=2.0, seed=0):
    """(R, C, D): Gaussian fields whose covariance depends on distance alone."""
    coords = grid_coordinates(grid)
    covariance = torch.exp(-torch.cdist(coords, coords).square() / (2 * length**2))
    values, directions = torch.linalg.eigh(covariance)
    return (directions * values.clamp(min=0).sqrt() @ noise(grid, width, seed).flatten(0, 1)).unflatten(0, grid)


def variance(side):
    """Variance of the numbers 0 … side − 1."""
    return (side**2 - 1) / 12


def mean_absolute(variance):
    """Mean absolute value of a centered normal variable."""
    return math.sqrt(2 * variance / math.pi)


DEGENERATE = {
    "zeros": torch.zeros(3, 4, 5),
    "constant": torch.full((4, 3, 5), 0.1),
    "one row": noise((1, 9), 4),
    "one column": noise((9, 1), 4),
    "one column of width 1": noise((7, 1), 1),
    "two by two": noise((2, 2), 3),
    "width 1": noise((3, 4), 1),
    "one position": noise((1, 1), 3),
    "two positions": noise((1, 2), 3),
    "two distinct vectors": torch.ones(4, 5, 3) * torch.tensor([1.0, -1.0, 1.0, -1.0])[:, None, None],
    "one row differs": torch.zeros(4, 5, 3).index_fill_(0, torch.tensor([2]), 1.0),
    "huge": 1e300 * noise((3, 5), 4),
    "tiny": 1e-300 * noise((3, 5), 4),
    "half precision": noise((3, 5), 4).half(),
}

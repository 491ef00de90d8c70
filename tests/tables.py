"""Tables of position vectors whose every number is known."""

import math

import torch

from vitpos.inspection.table_stats import coordinates

GRID = (9, 13)


def noise(grid=GRID, width=64, seed=0):
    """(R, C, D): white noise of deviation 1."""
    return torch.randn(*grid, width, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def plane(grid=GRID, width=64, sigma=0.0, seed=0):
    """(R, C, D): row and column, turned by a random orthogonal map into D dimensions, plus white noise."""
    draw = torch.Generator().manual_seed(1000 + seed)
    turn = torch.linalg.qr(torch.randn(width, width, dtype=torch.float64, generator=draw))[0][:2]
    return (coordinates(grid) @ turn).unflatten(0, grid) + sigma * noise(grid, width, seed)


def crossed(grid=GRID, width=64, sigma=0.3, seed=0):
    """(R, C, D): a random vector for each row and one for each column, added, plus noise: nothing is near anything."""
    draw = torch.Generator().manual_seed(2000 + seed)
    row, column = (torch.randn(side, width, dtype=torch.float64, generator=draw) for side in grid)
    return row[:, None] + column + sigma * noise(grid, width, seed)


def framed(grid=GRID, width=64, seed=0):
    """(R, C, D): white noise, and one vector that all places of the rim share."""
    table = noise(grid, width, seed)
    rim = torch.ones(grid, dtype=torch.bool)
    rim[1:-1, 1:-1] = False
    return table + rim[..., None] * torch.linspace(-1.0, 1.0, width, dtype=torch.float64)


def smooth(grid=GRID, width=64, length=2.0, seed=0):
    """(R, C, D): Gaussian fields whose covariance falls with distance alone, the same in all directions."""
    places = coordinates(grid)
    covariance = torch.exp(-torch.cdist(places, places).square() / (2 * length**2))
    values, directions = torch.linalg.eigh(covariance)
    return (directions * values.clamp(min=0).sqrt() @ noise(grid, width, seed).flatten(0, 1)).unflatten(0, grid)


def variance(side):
    """Of the numbers 0 … side − 1."""
    return (side**2 - 1) / 12


def mean_absolute(variance):
    """Of a normal variable without mean."""
    return math.sqrt(2 * variance / math.pi)

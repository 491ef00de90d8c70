"""A table of position vectors (R, C, D) as the analyses read it: checked once, in float64, at no scale of its own."""

from __future__ import annotations

import torch
from torch import Tensor

from vitpos.errors import UserError

ROUNDING = torch.finfo(torch.float64).eps


def vectors(table: Tensor) -> Tensor:
    """(R, C, D) → (N, D), row-major, in float64, divided by the largest magnitude: no number here depends on the scale."""
    if table.ndim != 3 or not table.numel() or table.is_complex():
        raise UserError(
            f"a table of position vectors has the shape (rows, columns, width) and real numbers, not "
            f"{tuple(table.shape)} of {table.dtype}; leave out CLS and give the vectors on their grid"
        )
    flat = table.detach().cpu().double().flatten(0, 1)
    if not flat.isfinite().all():
        wrong = int((~flat.isfinite()).any(1).sum())
        raise UserError(f"{wrong} of {len(flat)} position vectors are not finite (NaN or infinite); repair the table")
    largest = flat.abs().max()
    return flat / largest if largest > 0 else flat


def centred(x: Tensor) -> Tensor:
    """(N, D): vectors less their mean; exactly 0 where only rounding is left of a column or of a vector."""
    rest = x - x.mean(0)
    told = rest.abs() > 16 * ROUNDING * x.abs().max()
    return torch.where(told.any(0) & told.any(1, keepdim=True), rest, 0)


def coordinates(grid: tuple[int, int]) -> Tensor:
    """(N, 2): row and column of each place, row-major, in patches."""
    return torch.cartesian_prod(*(torch.arange(side, dtype=torch.float64) for side in grid))

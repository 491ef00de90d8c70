"""A table of position vectors (R, C, D) as the analyses read it: checked once, in float64, at no scale of its own."""

from __future__ import annotations

import torch
from torch import Tensor

from vitpos.errors import UserError

ROUNDING = torch.finfo(torch.float64).eps
INSTALL = "pip install 'vitpos[analysis]'"
MANY = 400  # places, above which tests draw less often and regressions try fewer penalties
MOST = 2000  # places that pairs are made of


def checked(table: Tensor) -> Tensor:
    """The table (R, C, D), if it is one and all its numbers are finite."""
    if table.ndim != 3 or not table.numel() or table.is_complex():
        raise UserError(
            f"a table of position vectors has the shape (rows, columns, width) and real numbers, not "
            f"{tuple(table.shape)} of {table.dtype}; leave out CLS and give the vectors on their grid"
        )
    bad = int((~table.isfinite()).any(2).sum())
    if bad:
        places = table.shape[0] * table.shape[1]
        raise UserError(f"{bad} of {places} position vectors are not finite (NaN or infinite); repair the table")
    return table.detach().cpu()


def vectors(table: Tensor) -> Tensor:
    """(R, C, D) → (N, D), row-major, in float64, divided by the largest magnitude: no number here depends on the scale."""
    flat = checked(table).double().flatten(0, 1)
    largest = flat.abs().max()
    return flat / largest if largest > 0 else flat


def centred(x: Tensor) -> Tensor:
    """(N, D): vectors less their mean; exactly 0 where only rounding is left of a column or of a vector."""
    rest = x - x.mean(0)
    told = rest.abs() > 16 * ROUNDING * x.abs().max()
    return torch.where(told.any(0) & told.any(1, keepdim=True), rest, 0)


def spanned(x: Tensor) -> tuple[Tensor, Tensor]:
    """(N, D) → (N, r) directions and (r,) singular values of vectors, from the largest, without those of rounding."""
    directions, values, _ = torch.linalg.svd(x, full_matrices=False)
    kept = values > max(x.shape) * ROUNDING * values[0]
    return directions[:, kept], values[kept]


def coordinates(grid: tuple[int, int]) -> Tensor:
    """(N, 2): row and column of each place, row-major, in patches."""
    return torch.cartesian_prod(*(torch.arange(side, dtype=torch.float64) for side in grid))


def thinned(table: Tensor, *, most: int = MOST) -> tuple[Tensor, tuple[int, int]]:
    """A table (R, C, D) of no more than ``most`` places: every k-th row and column of it, with these two steps.

    The steps are the least that do, and the same, so that distances keep their proportions; a side of 1 stays as it is.
    """
    rows, columns, _ = checked(table).shape
    step = 1
    while -(-rows // step) * -(-columns // step) > most:
        step += 1
    steps = (step if rows > 1 else 1, step if columns > 1 else 1)
    return table[:: steps[0], :: steps[1]], steps


def taken(steps: tuple[int, int]) -> str:
    """Which places a thinned table has, in words: "every 2nd row and column"; nothing if all."""
    step = max(steps)
    if step == 1:
        return ""
    end = "th" if step % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(step % 10, "th")
    sides = [side for side, one in zip(("row", "column"), steps, strict=True) if one > 1]
    return f"every {step}{end} {' and '.join(sides)}"

"""Position tables (R, C, D): validation, centering, subsampling, similarity, CKA, spectrum and effective rank."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from vitpos.errors import InputError
from vitpos.models.base import PatchClassifier
from vitpos.models.token_embedding import input_vectors
from vitpos.positions import Positions

EPS = torch.finfo(torch.float64).eps
INSTALL = "pip install scikit-learn umap-learn"
LARGE = 400  # positions, above which tests sample less and regressions try fewer penalties
MAX_POSITIONS = 2000  # positions of which all pairs are compared; larger tables are subsampled
CONSTANT = "all position vectors are equal"


def position_vectors(model: PatchClassifier, grid: tuple[int, int] | None = None) -> Tensor:
    """Returns the vectors (N, D) that the encoding adds to the patch tokens.

    Args:
        grid: rows and columns of patches; by default the grid the model was built for. The coordinates of another grid
            than that of the training are scaled to its range, as for images.
    """
    pos = Positions.from_grid(grid or model.geometry.grid, train_grid=model.train_grid)
    with torch.inference_mode():
        like = next(model.parameters()).new_zeros(model.geometry.dim)
        return input_vectors(model.encoding, pos.to(model.device), like)[0][0].cpu()


def position_table(model: PatchClassifier) -> Tensor | None:
    """Returns the vectors (R, C, D) that the encoding adds to the patch tokens of the training grid; None if all are 0."""
    vectors = position_vectors(model)
    return vectors.unflatten(0, model.geometry.grid) if vectors.any() else None


def validate_table(table: Tensor) -> Tensor:
    """Returns the table (R, C, D) detached and on the CPU; raises if it is not 3-D, real, non-empty and finite."""
    if table.ndim != 3 or not table.numel() or table.is_complex():
        raise InputError(
            f"a position table has the shape (rows, columns, width) and real numbers, not {tuple(table.shape)} of "
            f"{table.dtype}; leave out prefix tokens and unflatten the vectors to their grid"
        )
    bad = int((~table.isfinite()).any(2).sum())
    if bad:
        count = table.shape[0] * table.shape[1]
        raise InputError(f"{bad} of {count} position vectors contain NaN or infinity; repair the table")
    return table.detach().cpu()


def flatten_table(table: Tensor) -> Tensor:
    """Flattens a table (R, C, D) to (N, D), row-major, float64, and divides it by its largest absolute entry."""
    flat = validate_table(table).double().flatten(0, 1)
    largest = flat.abs().max()
    return flat / largest if largest > 0 else flat


def center(x: Tensor) -> Tensor:
    """Returns x (N, D) minus its mean over N; columns that are constant up to rounding become exactly 0.

    So do rows that equal the mean up to rounding.
    """
    centered = x - x.mean(0)
    varies = centered.abs() > 16 * EPS * x.abs().max()
    return torch.where(varies.any(0) & varies.any(1, keepdim=True), centered, 0)


def column_space(x: Tensor) -> tuple[Tensor, Tensor]:
    """Returns left singular vectors (N, r) and the singular values (r,) of x (N, D) that are not 0 up to rounding."""
    u, values, _ = torch.linalg.svd(x, full_matrices=False)
    kept = values > max(x.shape) * EPS * values[0]
    return u[:, kept], values[kept]


def grid_coordinates(grid: tuple[int, int]) -> Tensor:
    """Returns the row and column, (N, 2) float64, of each position of the grid in row-major order."""
    return torch.cartesian_prod(*(torch.arange(side, dtype=torch.float64) for side in grid))


def subsample(table: Tensor, *, max_positions: int = MAX_POSITIONS) -> tuple[Tensor, tuple[int, int]]:
    """Returns every k-th row and column of a table (R, C, D), and the step of each axis.

    k is the smallest step that leaves at most ``max_positions``. Both axes have the same step, which keeps distances in
    proportion; an axis of length 1 has step 1.
    """
    rows, columns, _ = validate_table(table).shape
    step = 1
    while -(-rows // step) * -(-columns // step) > max_positions:
        step += 1
    steps = (step if rows > 1 else 1, step if columns > 1 else 1)
    return table[:: steps[0], :: steps[1]], steps


def subsample_text(steps: tuple[int, int]) -> str:
    """Returns the steps (row, column) of a subsampled table as text: "every 2nd row and column"; empty if both are 1."""
    step = max(steps)
    if step == 1:
        return ""
    suffix = "th" if step % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(step % 10, "th")
    axes = [axis for axis, one in zip(("row", "column"), steps, strict=True) if one > 1]
    return f"every {step}{suffix} {' and '.join(axes)}"


def cosine_similarity(x: Tensor) -> Tensor:
    """Returns the cosine (N, N) of every two vectors of x (N, D); 0 where one of them is zero."""
    norms = x.norm(dim=1, keepdim=True)
    unit = torch.where(norms > 0, x / norms, 0)
    return unit @ unit.mT


def linear_cka(x: Tensor, y: Tensor) -> float | None:
    """Returns the linear centered kernel alignment (Kornblith et al., ICML 2019) of x (N, D) and y (N, E), 0 to 1.

    It is 1 if y is x rotated and scaled, and None if one of them does not vary.
    """
    a, b = (vectors.double() - vectors.double().mean(0) for vectors in (x, y))
    norms = (a.mT @ a).norm() * (b.mT @ b).norm()
    return float((a.mT @ b).square().sum() / norms) if norms > 0 else None


@dataclass(frozen=True)
class Spectrum:
    """Singular values σ of a position table and quantities derived from them (MJP, CVPR 2023: Definition 1, Table 6).

    values: K singular values, descending, of the table divided by its largest absolute entry. variance:
    Σ_{i≤n} σ_i² / Σ σ_i² for n = 1 … K, the variance explained by n principal components. cumulative: Σ_{i≤n} σ_i / Σ σ_i.
    effective_rank: exp of the entropy of σ² / Σ σ², between 1 (one direction) and K (all directions equal). If all
    singular values are 0, variance, cumulative and effective_rank are None, and ``reason`` says why.
    """

    values: list[float]
    variance: list[float] | None
    cumulative: list[float] | None
    effective_rank: float | None
    reason: str = ""

    def explained(self, components: int = 10) -> dict[str, float]:
        """Returns explained_1, explained_2, … → fraction of the variance, 0 to 1, in the first 1, 2, … components."""
        return {f"explained_{n}": fraction for n, fraction in enumerate((self.variance or [])[:components], 1)}


def spectrum(table: Tensor) -> dict[str, Spectrum]:
    """Returns two spectra of a table (R, C, D): ``centered``, with the mean vector subtracted as in PCA, and ``raw``.

    MJP's Definition 1 does not state which is meant; its Table 6 uses torch.pca_lowrank, which centers. Its Figure 4
    mentions both eigenvalues and singular values: the field ``variance`` uses the former, ``cumulative`` the latter.
    """
    x = flatten_table(table)
    both = torch.linalg.svdvals(torch.stack([center(x), x]))  # (2, K)
    rounding = max(x.shape) * EPS * both[1, 0]
    centered, raw = torch.where(both > rounding, both, 0)
    return {"centered": _spectrum(centered, CONSTANT), "raw": _spectrum(raw, "all position vectors are 0")}


def _spectrum(values: Tensor, reason: str) -> Spectrum:
    if values[0] == 0:
        return Spectrum(values.tolist(), None, None, None, reason)
    fractions = values.square() / values.square().sum()
    entropy = -torch.special.xlogy(fractions, fractions).sum()
    cumulative = values.cumsum(0) / values.sum()
    return Spectrum(values.tolist(), fractions.cumsum(0).tolist(), cumulative.tolist(), entropy.exp().item())

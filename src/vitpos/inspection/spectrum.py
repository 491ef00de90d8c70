"""How many directions the position vectors use (MJP, CVPR 2023: Definition 1, Table 6, Figure 4)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from vitpos.inspection.table_stats import ROUNDING, centred, vectors


@dataclass(frozen=True)
class Spectrum:
    """The singular values σ of a table, and what follows from them.

    values: (K,) σ from the largest, in units of the table's largest magnitude. variance: Σ_{i≤n} σ_i² / Σ σ_i² for
    n = 1 … K, the explained variance of n principal components. accumulated: the same of σ, not squared.
    effective_rank: exp of the entropy of σ² / Σ σ², from 1 (one direction) to K (all alike). Without any variance all
    are None, and ``reason`` says why.
    """

    values: list[float]
    variance: list[float] | None
    accumulated: list[float] | None
    effective_rank: float | None
    reason: str = ""

    def explained(self, components: int = 10) -> dict[str, float]:
        """explained_1, explained_2, …: the share of variance, 0 to 1, in the first so many components."""
        return {f"explained_{n}": share for n, share in enumerate((self.variance or [])[:components], 1)}


def spectrum(table: Tensor) -> dict[str, Spectrum]:
    """The spectra of a table (R, C, D): ``centred`` (the mean vector taken off: principal components, Table 6) and ``raw``.

    MJP's definition does not say which; its numbers are those of torch.pca_lowrank, which centres. Its Figure 4 speaks of
    eigenvalues and of singular values: ``variance`` takes the former, ``accumulated`` the latter.
    """
    x = vectors(table)
    both = torch.linalg.svdvals(torch.stack([centred(x), x]))  # (2, K)
    noise = max(x.shape) * ROUNDING * both[1, 0]
    centred_values, raw_values = torch.where(both > noise, both, 0)
    return {
        "centred": _spectrum(centred_values, "all position vectors are the same"),
        "raw": _spectrum(raw_values, "all position vectors are 0"),
    }


def _spectrum(values: Tensor, reason: str) -> Spectrum:
    if values[0] == 0:
        return Spectrum(values.tolist(), None, None, None, reason)
    shares = values.square() / values.square().sum()
    entropy = -torch.special.xlogy(shares, shares).sum()
    accumulated = values.cumsum(0) / values.sum()
    return Spectrum(values.tolist(), shares.cumsum(0).tolist(), accumulated.tolist(), entropy.exp().item())

"""Likeness that depends on distance or offset alone: what a claim about rows, columns or the rim has to beat."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from vitpos.inspection._mirror_blocks import Mirrors
from vitpos.inspection.table_stats import ROUNDING, coordinates
from vitpos.patches import generator_of

NEAR = 1.0  # patches: how far apart distances speak for each other
WIDEST = 192  # columns of a random table; fewer than the table's own make a test more careful, never less
LARGEST = 2**22  # numbers in a batch of tables, or of their inner products


class Law:
    """What pairs of places owe to how far they are apart: contrasts without it, and random tables with nothing else."""

    def __init__(self, grid: tuple[int, int], apart: Tensor):
        """``apart``: (N, N, …), alike for pairs that are equally far apart."""
        self.mirrors = Mirrors(grid)
        flat = apart.reshape(len(apart) ** 2, -1)
        self.classes, which, counts = flat.unique(dim=0, return_inverse=True, return_counts=True)
        self.which, self.counts = which.unflatten(0, apart.shape[:2]), counts.double()
        self.smooth = torch.eye(len(counts), dtype=torch.float64)  # (K, K), of means over these classes

    def matched(self, weight: Tensor) -> Tensor:
        """(N, N): the weights of a contrast, now of what each pair has more than pairs as far apart have in the mean."""
        sums = weight.new_zeros(len(self.counts)).index_add_(0, self.which.flatten(), weight.flatten())
        return weight - (self.smooth.mT @ sums / self.counts)[self.which]

    def explains(self, products: Tensor) -> Tensor:
        """(N, N) → (N, N): centred inner products as they would be if that were all."""
        lengths = products.diagonal()
        law = self.means(lengths[:, None] + lengths - 2 * products)
        rest = law - law.mean(0)
        return -(rest - rest.mean(1, keepdim=True)) / 2

    def means(self, values: Tensor) -> Tensor:
        """(N, N) → (N, N): of each pair, the mean over all that are as far apart."""
        sums = values.new_zeros(len(self.counts)).index_add_(0, self.which.flatten(), values.flatten())
        return (self.smooth @ (sums / self.counts))[self.which]

    def tables(self, x: Tensor, *, draws: int, seed: int, whole: bool = False) -> Iterator[Tensor]:
        """Batches (B, N, q) of random tables whose squared differences follow the law of centred vectors (N, D).

        ``whole``: of vectors that are not centred, and it is their inner products that follow the law. A table has q
        independent columns, normal fields whose covariance the law gives: so many that inner products scatter about the law
        as much as the table's do. What is irregular in any way has to show more of what is claimed. They are in float32.
        """
        own = x @ x.mT
        covariance = self.means(own) if whole else self.explains(own)
        found = [torch.linalg.eigh(block) for block in self.mirrors.blocks(covariance)]
        values = torch.cat([one.eigenvalues for one in found])
        values = torch.where(values > len(x) * ROUNDING * values.max(), values, 0)
        values = values * own.trace() / values.sum()
        sizes = values.split(self.mirrors.sizes)
        roots = [(vectors * part.sqrt())[:, part > 0] for (_, vectors), part in zip(found, sizes, strict=True)]
        factor = self.mirrors.joined(torch.block_diag(*roots).split(self.mirrors.sizes))
        scatter = (own - factor @ factor.mT).square().sum()
        alone = values.sum().square() + values.square().sum()  # the scatter of a single column
        width = max(1, int(min(float(alone / scatter), x.shape[1], WIDEST)))
        generator = generator_of(seed)
        batch = max(1, LARGEST // (len(x) * max(len(x), width)))
        for start in range(0, draws, batch):
            size = min(batch, draws - start)
            drawn = [torch.randn(size, root.shape[1], width, generator=generator) for root in roots]
            yield self.mirrors.joined([root.float() @ one for root, one in zip(roots, drawn, strict=True)])


class OffsetLaw(Law):
    """What pairs owe to how many rows and columns they are apart: more than distance, and no claim about rows is left."""

    def __init__(self, grid: tuple[int, int]):
        places = coordinates(grid)
        super().__init__(grid, (places[:, None] - places).abs())


class DistanceLaw(Law):
    """What pairs owe to their distance alone.

    Cosines or squared differences are averaged over all pairs equally far apart, and these means are smoothed over distance
    by local parabolas (Gaussian weights, ``NEAR`` patches wide, times the number of pairs). Unsmoothed they would explain
    rows by distance, since only pairs of a row or of a column are exactly 2 or 3 patches apart.
    """

    def __init__(self, grid: tuple[int, int]):
        places = coordinates(grid)
        super().__init__(grid, (places[:, None] - places).square().sum(2))
        self.apart = self.classes[:, 0].sqrt()
        if len(self.apart) > 1:  # a place is at no distance from itself
            self.smooth[1:, 1:] = _parabolas(self.apart[1:], self.counts[1:])

    def owed(self, values: Tensor, seen: Tensor) -> Tensor:
        """(N, N): what each pair would have if distance were all, by those pairs of different places that are ``seen``."""
        which = self.which.flatten()
        counts, sums = (
            torch.zeros_like(self.counts).index_add_(0, which, x.flatten().double()) for x in (seen, values * seen)
        )
        law = torch.zeros_like(sums)
        law[1:] = _parabolas(self.apart[1:], counts[1:]) @ (sums / counts.clamp(min=1))[1:]
        return law[self.which]


def _parabolas(at: Tensor, counts: Tensor) -> Tensor:
    """(K, K): the matrix that takes values at K distances to their local parabolas, each at its own distance."""
    gap = at - at[:, None]
    weights = counts * torch.exp(-(gap / NEAR).square() / 2)
    terms = torch.stack([torch.ones_like(gap), gap, gap.square()], 2)  # (K, K, 3)
    normal = torch.einsum("kj,kjp,kjq->kpq", weights, terms, terms)
    level = torch.linalg.pinv(normal, rtol=1e-9, hermitian=True)[:, 0]  # (K, 3)
    return torch.einsum("kp,kjp,kj->kj", level, terms, weights)

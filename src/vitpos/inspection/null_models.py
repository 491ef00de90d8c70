"""Null models: random position tables in which the similarity of two positions depends on distance or offset alone.

A claim such as "positions in the same row are more similar than others" counts only if it holds for the inspected table
more clearly than for tables that are sampled from a null model.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from vitpos.inspection._mirror_symmetry import MirrorSymmetry
from vitpos.inspection.table_stats import EPS, grid_coordinates
from vitpos.patches import make_generator

BANDWIDTH = 1.0  # patches: width of the Gaussian that smooths means over distance
MAX_WIDTH = 192  # columns of a sampled table; fewer than the table's own make a test more conservative, never less
MAX_NUMBERS = 2**22  # numbers per batch of tables, or of their inner products


class NullModel:
    """Base class of null models of position tables: the similarity of a pair of positions depends on its class alone.

    A position table has one vector per position of a grid. A class is all pairs of positions at equal distance, or at
    equal offset. ``residual_weights`` removes the class means from a contrast, a weighted sum over pairs such as "same
    row minus other pairs"; ``sample_tables`` samples random tables that follow the class means of a given table.
    """

    def __init__(self, grid: tuple[int, int], separation: Tensor):
        """Groups all pairs of the N positions of a grid into classes of equal distance or offset.

        ``separation`` (N, N, …) is the distance or offset of each pair; pairs with equal values form a class.
        """
        self.symmetry = MirrorSymmetry(grid)
        flat = separation.reshape(len(separation) ** 2, -1)
        self.values, class_of, counts = flat.unique(dim=0, return_inverse=True, return_counts=True)
        self.class_of, self.counts = class_of.unflatten(0, separation.shape[:2]), counts.double()
        self.smoother = torch.eye(len(counts), dtype=torch.float64)  # (K, K), applied to the K class means

    def residual_weights(self, weight: Tensor) -> Tensor:
        """Returns weights w (N, N) with Σ w · v = Σ weight · (v − class mean of v) for any values v (N, N) of pairs.

        ``weight`` (N, N) are the weights of a contrast, such as "same row minus other pairs". A class is all pairs of
        positions at equal distance, or at equal offset.
        """
        sums = weight.new_zeros(len(self.counts)).index_add_(0, self.class_of.flatten(), weight.flatten())
        return weight - (self.smoother.mT @ sums / self.counts)[self.class_of]

    def expected_products(self, products: Tensor) -> Tensor:
        """Returns the inner products (N, N) of position vectors that the null model expects.

        The squared distances between the vectors are replaced by their means over all pairs of positions at equal
        distance, or at equal offset, and converted back to inner products.

        Args:
            products: (N, N), observed inner products of centered position vectors.
        """
        squares = products.diagonal()
        distances = self.class_means(squares[:, None] + squares - 2 * products)
        centered = distances - distances.mean(0)
        return -(centered - centered.mean(1, keepdim=True)) / 2

    def class_means(self, values: Tensor) -> Tensor:
        """Returns (N, N): for each pair of positions the mean of ``values`` (N, N) over all pairs of its class.

        A class is all pairs at equal distance (`DistanceNull`, whose means are smoothed over neighboring distances) or
        all pairs at equal offset (`OffsetNull`).
        """
        sums = values.new_zeros(len(self.counts)).index_add_(0, self.class_of.flatten(), values.flatten())
        return (self.smoother @ (sums / self.counts))[self.class_of]

    def sample_tables(self, x: Tensor, *, samples: int, seed: int, centered: bool = True) -> Iterator[Tensor]:
        """Yields batches (B, N, q) of random tables, float32, whose similarity depends on distance or offset alone.

        A table has a vector of width q for each of N positions. The expected similarity at each distance (or offset) is
        the mean similarity of the vectors x (N, D) at that distance (or offset). The q columns are independent Gaussian
        fields whose covariance is the expected inner product. q is chosen so that inner products scatter about their
        expectation as much as those of x do, so a test against these tables is the stricter, the more irregular x is.

        Args:
            samples: number of tables in total.
            centered: True if x is centered; the tables then match its mean squared distances, otherwise its mean inner
                products.
        """
        own = x @ x.mT
        covariance = self.expected_products(own) if centered else self.class_means(own)
        eigen = [torch.linalg.eigh(block) for block in self.symmetry.blocks(covariance)]
        values = torch.cat([one.eigenvalues for one in eigen])
        values = torch.where(values > len(x) * EPS * values.max(), values, 0)
        values = values * own.trace() / values.sum()
        parts = values.split(self.symmetry.sizes)
        roots = [(vectors * part.sqrt())[:, part > 0] for (_, vectors), part in zip(eigen, parts, strict=True)]
        factor = self.symmetry.join(torch.block_diag(*roots).split(self.symmetry.sizes))
        scatter = (own - factor @ factor.mT).square().sum()
        scatter_of_one = values.sum().square() + values.square().sum()  # expected for a single column
        width = max(1, int(min(float(scatter_of_one / scatter), x.shape[1], MAX_WIDTH)))
        generator = make_generator(seed)
        batch = max(1, MAX_NUMBERS // (len(x) * max(len(x), width)))
        for start in range(0, samples, batch):
            size = min(batch, samples - start)
            noise = [torch.randn(size, root.shape[1], width, generator=generator) for root in roots]
            yield self.symmetry.join([root.float() @ one for root, one in zip(roots, noise, strict=True)])


class OffsetNull(NullModel):
    """Null model of position tables in which the similarity of two positions depends on |Δrow| and |Δcolumn| alone.

    Vectors may be similar within rows or columns, but the border of the grid is not special. Random tables sampled from
    this model serve to test statements about border, corners and norms of the vectors.
    """

    def __init__(self, grid: tuple[int, int]):
        coords = grid_coordinates(grid)
        super().__init__(grid, (coords[:, None] - coords).abs())


class DistanceNull(NullModel):
    """Null model of position tables in which the similarity of two positions depends on their Euclidean distance alone.

    Random tables sampled from this model serve to test statements about rows and columns. The mean similarity at each
    distance is smoothed over distance by local quadratic regression, weighted by the number of pairs and by a Gaussian
    with a standard deviation of ``BANDWIDTH`` (1) patches. Without smoothing, similarity within rows would look like an
    effect of distance, since only pairs within a row or column are exactly 2 or 3 patches apart.
    """

    def __init__(self, grid: tuple[int, int]):
        coords = grid_coordinates(grid)
        super().__init__(grid, (coords[:, None] - coords).square().sum(2))
        self.distances = self.values[:, 0].sqrt()
        if len(self.distances) > 1:  # class 0 is a position with itself
            self.smoother[1:, 1:] = _local_quadratic(self.distances[1:], self.counts[1:])

    def expected(self, values: Tensor, mask: Tensor) -> Tensor:
        """Returns, for each pair (N, N), the smoothed mean of ``values`` (N, N) over all pairs at its distance.

        Only pairs of different positions where ``mask`` (N, N) is true are used.
        """
        class_of = self.class_of.flatten()
        counts, sums = (
            torch.zeros_like(self.counts).index_add_(0, class_of, x.flatten().double()) for x in (mask, values * mask)
        )
        means = torch.zeros_like(sums)
        means[1:] = _local_quadratic(self.distances[1:], counts[1:]) @ (sums / counts.clamp(min=1))[1:]
        return means[self.class_of]


def _local_quadratic(at: Tensor, counts: Tensor) -> Tensor:
    """Returns the matrix (K, K) that smooths values at K distances by local quadratic regression.

    Args:
        at: (K,), the distances in patches.
        counts: (K,), number of pairs at each distance, the weight of its value.
    """
    gap = at - at[:, None]
    weights = counts * torch.exp(-(gap / BANDWIDTH).square() / 2)
    terms = torch.stack([torch.ones_like(gap), gap, gap.square()], 2)  # (K, K, 3)
    normal = torch.einsum("kj,kjp,kjq->kpq", weights, terms, terms)
    intercept = torch.linalg.pinv(normal, rtol=1e-9, hermitian=True)[:, 0]  # (K, 3)
    return torch.einsum("kp,kjp,kj->kj", intercept, terms, weights)

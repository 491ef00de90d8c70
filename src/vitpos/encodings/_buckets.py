"""Vectors of pairs by bucket: reads products with all buckets, or sums weights into them.

Both replace tensors of vectors per pair (B, H, N, N, d) by numbers per bucket (B, H, N, K).
"""

from __future__ import annotations

from torch import Tensor

Buckets = list[tuple[Tensor, Tensor | None]]
"""Index (B|1, 1, N, N) of the bucket of each pair and its weight, for each bucket that is interpolated between.

The weight is None if every pair has exactly one bucket.
"""


def read_buckets(values: Tensor, buckets: Buckets) -> Tensor:
    """Reads values (B, H, N, K) of each query and bucket for every pair: (B, H, N, N)."""
    batch, heads = values.shape[:2]
    total = None
    for index, weight in buckets:
        read = values.gather(3, index.expand(batch, heads, -1, -1))
        read = read if weight is None else read * weight
        total = read if total is None else total + read
    assert total is not None
    return total


def sum_buckets(weights: Tensor, buckets: Buckets, count: int) -> Tensor:
    """Sums weights of pairs (B, H, N, N) over the keys of each of ``count`` buckets: (B, H, N, count)."""
    sums = weights.new_zeros(*weights.shape[:3], count)
    for index, weight in buckets:
        sums = sums.scatter_add(3, index.expand_as(weights), weights if weight is None else weights * weight)
    return sums

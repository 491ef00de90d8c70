"""Tables with one vector per bucket of offsets, such as those of iRPE and Shaw: reading them for all pairs of patches.

The functions avoid a tensor with a vector per pair (B, H, N, N, d): they use one number per query and bucket,
(B, H, N, K) for K buckets.
"""

from __future__ import annotations

from torch import Tensor

Buckets = list[tuple[Tensor, Tensor | None]]
"""The buckets of each pair of patches, as a list of (index, weight), both (B|1, 1, N, N).

Usually one index without a weight (None); if a pair lies between buckets, one entry per bucket to interpolate from.
"""


def read_buckets(values: Tensor, buckets: Buckets) -> Tensor:
    """Returns ``values[b, h, i, bucket of (i, j)]`` for all queries i and keys j: (B, H, N, N).

    ``values`` is (B, H, N, K) with K buckets, groups of similar offsets. ``buckets`` is a list of (index, weight), both
    (B|1, 1, N, N), with the bucket of each pair (i, j); entries are multiplied by the weight and summed over the list.
    A weight of None is 1.
    """
    batch, heads = values.shape[:2]
    total = None
    for index, weight in buckets:
        read = values.gather(3, index.expand(batch, heads, -1, -1))
        read = read if weight is None else read * weight
        total = read if total is None else total + read
    assert total is not None
    return total


def sum_buckets(weights: Tensor, buckets: Buckets, count: int) -> Tensor:
    """Sums attention weights (B, H, N, N) of each query over the keys in each of ``count`` buckets: (B, H, N, count).

    ``buckets`` is a list of (index, weight), both (B|1, 1, N, N): a key is in bucket ``index`` with this weight. A
    weight of None is 1.
    """
    sums = weights.new_zeros(*weights.shape[:3], count)
    for index, weight in buckets:
        sums = sums.scatter_add(3, index.expand_as(weights), weights if weight is None else weights * weight)
    return sums

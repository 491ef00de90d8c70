"""The learning rate schedule: linear warm-up, then a cosine."""

from __future__ import annotations

import math


def warmup_cosine(progress: float, warmup: float, *, peak: float = 1.0, start: float = 0.0, end: float = 0.0) -> float:
    """Returns the learning rate at ``progress``, the fraction of training that is done, 0 to 1.

    It rises linearly from ``start`` to ``peak`` until the fraction ``warmup``, and falls to ``end`` along a half cosine.
    """
    if progress < warmup:
        return start + (peak - start) * (progress / warmup)
    return end + (peak - end) * (0.5 + 0.5 * math.cos(math.pi * (progress - warmup) / (1 - warmup)))

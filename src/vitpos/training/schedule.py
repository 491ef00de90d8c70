"""The learning rate schedule: linear warm-up, then a cosine."""

from __future__ import annotations

import math


def warmup_cosine(progress: float, warmup: float, *, peak: float = 1.0, start: float = 0.0, end: float = 0.0) -> float:
    """Returns the learning rate at ``progress`` (0…1): linear from ``start`` to ``peak`` until ``warmup``, then cosine."""
    if progress < warmup:
        return start + (peak - start) * (progress / warmup)
    return end + (peak - end) * (0.5 + 0.5 * math.cos(math.pi * (progress - warmup) / (1 - warmup)))

"""How a rate changes over training."""

import math


def warmup_cosine(progress: float, warmup: float, *, peak: float = 1.0, start: float = 0.0, end: float = 0.0) -> float:
    """The rate at ``progress`` (0…1): straight from ``start`` to ``peak`` in the share ``warmup``, by cosine to ``end``."""
    if progress < warmup:
        return start + (peak - start) * (progress / warmup)
    return end + (peak - end) * (0.5 + 0.5 * math.cos(math.pi * (progress - warmup) / (1 - warmup)))

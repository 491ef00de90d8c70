"""How a rate changes over training."""

import math


def warmup_cosine(progress: float, warmup: float) -> float:
    """A factor at ``progress`` (0…1): a straight climb to 1 for the share ``warmup``, then half a cosine to 0."""
    if progress < warmup:
        return progress / warmup
    return 0.5 + 0.5 * math.cos(math.pi * (progress - warmup) / (1 - warmup))

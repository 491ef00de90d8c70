"""How a rate changes over training."""

import math


def warmup_cosine(progress: float, warmup: float) -> float:
    """A factor from 0 to 1 at ``progress`` (0…1): a straight climb for the share ``warmup``, then half a cosine down."""
    if progress < warmup:
        return progress / warmup
    return 0.5 + 0.5 * math.cos(math.pi * (progress - warmup) / (1 - warmup))

"""Timing shared by the benchmarks."""

import time
from collections.abc import Callable


def process_time(work: Callable[[], object]) -> float:
    """Returns the processor time in seconds, over all threads, of one call."""
    began = time.process_time()
    work()
    return time.process_time() - began

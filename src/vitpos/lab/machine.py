"""Describes the machine and library versions that a result was computed with."""

from __future__ import annotations

import os
import platform
import re
from importlib.metadata import version
from pathlib import Path


def machine() -> dict[str, str]:
    """Returns a dictionary of texts: processor, vector instructions, cores, threads, memory, system and library versions.

    Other vector instructions give slightly different numbers, because sums are rounded in another order.
    """
    import torch

    kibibytes = _search("/proc/meminfo", r"MemTotal:\s*(\d+)")
    return {
        "processor": _search("/proc/cpuinfo", r"model name\s*:\s*(.+)") or platform.processor() or platform.machine(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "cores": str(os.cpu_count()),
        "threads": str(torch.get_num_threads()),
        "memory": f"{int(kibibytes) / 2**20:.0f} GiB" if kibibytes else "unknown",
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        **{name: version(name) for name in ("vitpos", "torch", "numpy")},
    }


def _search(path: str, pattern: str) -> str | None:
    try:
        found = re.search(pattern, Path(path).read_text())
    except OSError:
        return None
    return found[1] if found else None

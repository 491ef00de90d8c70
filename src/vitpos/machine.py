"""The machine and the versions that made a number."""

from __future__ import annotations

import os
import platform
import re
from importlib.metadata import version
from pathlib import Path


def machine() -> dict[str, str]:
    """Processor, cores, memory, system and the versions that matter."""
    import torch

    kibibytes = _first("/proc/meminfo", r"MemTotal:\s*(\d+)")
    return {
        "processor": _first("/proc/cpuinfo", r"model name\s*:\s*(.+)") or platform.processor() or platform.machine(),
        "cores": str(os.cpu_count()),
        "threads": str(torch.get_num_threads()),
        "memory": f"{int(kibibytes) / 2**20:.0f} GiB" if kibibytes else "unknown",
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        **{name: version(name) for name in ("vitpos", "torch", "numpy")},
    }


def _first(path: str, pattern: str) -> str | None:
    try:
        found = re.search(pattern, Path(path).read_text())
    except OSError:
        return None
    return found[1] if found else None

"""Describes the machine, the library versions and the commit that a result was computed with."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from importlib.metadata import version
from pathlib import Path

import vitpos


def vector_instructions() -> str:
    """Returns the vector instructions that torch uses in this process, such as ``AVX2``."""
    import torch

    return torch.backends.cpu.get_cpu_capability()


def machine() -> dict[str, str]:
    """Returns a dictionary of texts: processor, vector instructions, cores, threads, memory, system and library versions.

    Other vector instructions round sums in another order. A training amplifies this: its results change as with another
    seed, while an evaluation of the same weights changes in the last digits.
    """
    import torch

    kibibytes = _search("/proc/meminfo", r"MemTotal:\s*(\d+)")
    return {
        "processor": _search("/proc/cpuinfo", r"model name\s*:\s*(.+)") or platform.processor() or platform.machine(),
        "instructions": vector_instructions(),
        "cores": str(os.cpu_count()),
        "threads": str(torch.get_num_threads()),
        "memory": f"{int(kibibytes) / 2**20:.0f} GiB" if kibibytes else "unknown",
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        **{name: version(name) for name in ("vitpos", "torch", "numpy")},
    }


def package_commit() -> str:
    """Returns the git commit of the package; an empty string if its files are not in git or have uncommitted changes."""
    package = Path(vitpos.__file__).parent
    try:
        _git(package, "ls-files", "--error-unmatch", "__init__.py")  # not installed inside another repository
        return "" if _git(package, "status", "--porcelain", "--", ".") else _git(package, "rev-parse", "HEAD")
    except (OSError, subprocess.CalledProcessError):
        return ""


def _git(folder: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True).stdout.strip()


def _search(path: str, pattern: str) -> str | None:
    try:
        found = re.search(pattern, Path(path).read_text())
    except OSError:
        return None
    return found[1] if found else None

"""The tiny experiment in a process of its own, with kernels that every x86 processor has, and what is stored of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.golden import adapter
from tests.golden.stored import TINY

INSPECTED = ("learned + relative + rope", "sape2")  # a table, offset biases and frequencies; content gates
COMMON_KERNELS = {"ATEN_CPU_CAPABILITY": "default", "MKL_CBWR": "COMPATIBLE", "ONEDNN_MAX_CPU_ISA": "SSE41"}
MEASURED = ("peak_megabytes", "step_milliseconds", "step_ratio")  # metrics that depend on the machine or the memory
WORDS = r"/verdict$"  # paths of inspect.json whose text is a result; all other text is prose


def run_tiny(folder: Path) -> Path:
    """The folder of a new run, with results.csv and 0.json, 1.json, … of the inspected encodings."""
    experiment, out = folder / "tiny.toml", folder / "run"
    experiment.write_text(adapter.experiment_text(TINY))
    adapter.run_alone(str(experiment), out, inspected=INSPECTED, environment=COMMON_KERNELS)
    return out


def flat(document: Any, path: str = "") -> dict[str, Any]:
    """The numbers and verdicts of inspect.json by their paths, ``table/norm/mean``."""
    if isinstance(document, dict | list):
        items = document.items() if isinstance(document, dict) else enumerate(document)
        return {k: v for key, x in items for k, v in flat(x, f"{path}/{key}".lstrip("/")).items()}
    if isinstance(document, str) and not re.search(WORDS, path):
        return {}
    return {} if document is None else {path: document}


def report(wrong: Mapping[Any, str]) -> str:
    """What changed, one line for each number."""
    return "\n".join([f"{len(wrong)} numbers changed:", *(f"{key}: {values}" for key, values in wrong.items())])

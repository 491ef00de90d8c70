"""The option ``--reproducible``: AVX2 instructions and one thread, whatever the environment sets.

Equal numbers were seen on AMD EPYC processors with AVX2. Others may differ, since the matrix library chooses its code by
processor.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

from typer import Option

from vitpos.errors import InputError

SETTINGS = {  # read once, when torch is imported
    "ATEN_CPU_CAPABILITY": "avx2",
    "MKL_CBWR": "AVX2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "VITPOS_THREADS": "1",  # of each worker process
}


def _restrict(wanted: bool) -> bool:
    """Sets environment variables of torch and its libraries, before they are imported; returns ``wanted``."""
    if wanted:
        cpuinfo = Path("/proc/cpuinfo")
        if cpuinfo.exists() and " avx2 " not in cpuinfo.read_text():
            raise InputError("--reproducible needs a processor with AVX2, which this one lacks; leave it out")
        if "torch" in sys.modules and os.environ.get("ATEN_CPU_CAPABILITY") != "avx2":
            raise InputError("--reproducible comes too late, torch is imported already; set ATEN_CPU_CAPABILITY=avx2")
        os.environ.update(SETTINGS)
    return wanted


Reproducible = Annotated[
    bool,
    Option(
        "--reproducible",
        callback=_restrict,
        is_eager=True,
        help="AVX2 instructions and one thread per process; numbers may still differ between types of processors",
    ),
]

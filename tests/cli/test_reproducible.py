"""``--reproducible`` in real processes: the environment of the shell does not change a number.

Without the option ``ATEN_CPU_CAPABILITY`` decides (`tests.report.test_instructions`), and the calibration errors differ.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from vitpos.cli.reproducible import SETTINGS

TINY = """
data = "mnist + subset(limit=256, test_limit=200)"
model = "vit(patch=7, dim=16, depth=1, heads=2)"
encoding = ["learned"]
evaluations = ["accuracy", "ood(dataset='noise(count=100)')"]
train.epochs = 1
train.batch_size = 64
"""


def run(out, toml, **environment):
    """The cell of a reproducible run and its machine.json; the environment has these settings alone."""
    inherited = {name: value for name, value in os.environ.items() if name not in SETTINGS}
    words = [sys.executable, "-m", "vitpos", "run", toml, "--out", out, "--workers", "1", "--reproducible"]
    done = subprocess.run(words, env=inherited | environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    (cell,) = (out / "cells").iterdir()
    return cell, json.loads((cell / "machine.json").read_text())


@pytest.mark.skipif(
    " avx2 " not in (Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""), reason="no AVX2"
)
def test_a_run_does_not_depend_on_instructions_and_threads_of_the_environment(tmp_path):
    toml = tmp_path / "tiny.toml"
    toml.write_text(TINY)
    default = {"ATEN_CPU_CAPABILITY": "default", "OMP_NUM_THREADS": "2"}
    one, machine = run(tmp_path / "one", toml, **default)
    other, plain = run(tmp_path / "other", toml)
    assert machine["instructions"] == plain["instructions"] == "AVX2"
    assert machine["threads"] == plain["threads"] == "1"
    csv, weights = "results.csv", "weights.safetensors"
    assert (tmp_path / "one" / csv).read_bytes() == (tmp_path / "other" / csv).read_bytes()
    assert (one / weights).read_bytes() == (other / weights).read_bytes()

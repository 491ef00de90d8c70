"""Runs ``vitpos`` in a process of its own or, where only its messages and exit code matter, in this one."""

import io
import os
import signal
import subprocess
import sys
import warnings
from contextlib import redirect_stderr, redirect_stdout
from unittest.mock import patch

from vitpos.cli.main import main

TINY = """
question = "Does a tiny model run?"
published_source = "nobody"
data = "mnist + subset(limit=640)"
model = "minimal(dim=16)"
encoding = ["none", "learned"]
notes = ["[baseline] is no markup [/nothing]"]
evaluations = ["accuracy", "jigsaw(grid=(7, 7), positions='follow')", "confusion"]
[train]
epochs = 2
batch_size = 64
[[published]]
data = "mnist + subset(limit=640)"
model = "minimal(dim=16)"
encoding = "learned"
evaluation = "accuracy"
value = 0.709
"""
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "120", "NO_COLOR": "1"}


def vitpos(*words, **options):
    command = [sys.executable, "-m", "vitpos", *map(str, words)]
    options = {"env": ENVIRONMENT, **options}
    return subprocess.run(command, capture_output=True, text=True, timeout=300, **options)


def vitpos_here(*words):
    """Runs the same entry point in this process, which saves the import of torch."""
    out, err = io.StringIO(), io.StringIO()
    handler, code = signal.getsignal(signal.SIGTERM), 0
    with (
        patch.object(sys, "argv", ["vitpos", *map(str, words)]),
        patch.dict(os.environ, {"COLUMNS": "120", "NO_COLOR": "1"}),
        warnings.catch_warnings(action="default"),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as stop:
            code = stop.code or 0
        finally:
            signal.signal(signal.SIGTERM, handler)
    return subprocess.CompletedProcess(words, int(code), out.getvalue(), err.getvalue())

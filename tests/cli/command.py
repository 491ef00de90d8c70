"""Runs ``vitpos`` in a process of its own."""

import os
import subprocess
import sys

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

"""Runs ``vitpos`` and scripts in processes of their own, forked from a server that has imported torch and read MNIST."""

import multiprocessing
import os
import runpy
import subprocess
import sys
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[1]
TINY = """
question = "Does a tiny model run?"
published_source = "nobody"
data = "mnist + subset(limit=640, test_limit=1000)"
model = "minimal(dim=16)"
encoding = ["none", "learned"]
notes = ["[baseline] is no markup [/nothing]"]
evaluations = ["accuracy", "jigsaw(grid=(7, 7), positions='follow')", "confusion"]
[train]
epochs = 2
batch_size = 64
[[published]]
data = "mnist + subset(limit=640, test_limit=1000)"
model = "minimal(dim=16)"
encoding = "learned"
evaluation = "accuracy"
value = 0.709
"""
os.environ["OMP_NUM_THREADS"] = "1"  # read once, when the server imports torch
ENVIRONMENT = {**os.environ, "COLUMNS": "120", "NO_COLOR": "1"}
FORKED = multiprocessing.get_context("forkserver")
FORKED.set_forkserver_preload(["tests.preloaded"])


def vitpos(*words, **options):
    return python("-m", "vitpos", *words, **options)


def python(*words, **options):
    """Runs ``python -m MODULE …`` or ``python FILE …`` to its end."""
    with TemporaryDirectory() as folder:
        return finish(start(*words, folder=folder, **options))


def start(*words, folder, cwd=".", env=ENVIRONMENT, before=None):
    """Starts the same; it prints to files in ``folder``. ``before`` is a function that the new process calls first."""
    printed = [Path(folder) / "stdout", Path(folder) / "stderr"]
    process = FORKED.Process(target=_run, args=(list(map(str, words)), Path(cwd).absolute(), env, printed, before))
    with chdir(ROOT):  # where the server, started with the first process, finds tests.preloaded
        process.start()
    return process, printed


def finish(started):
    process, printed = started
    process.join(300)
    if process.exitcode is None:
        process.kill()
        raise TimeoutError("it takes more than 300 s")
    return subprocess.CompletedProcess(process.name, process.exitcode, *(path.read_text() for path in printed))


def _run(words, cwd, env, printed, before):
    for number, path in enumerate(printed, 1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.path.insert(0, str(Path.cwd()))
    if before is not None:
        before()
    if words[0] == "-m":
        sys.argv = words[1:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = words
        runpy.run_path(str(Path(words[0]).absolute()), run_name="__main__")

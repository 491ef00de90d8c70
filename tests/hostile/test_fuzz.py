"""Mutated and grammar-made files: never a traceback, a hang, network access, a read elsewhere or much memory."""

import contextlib
import io
import json
import os
import random
import sys
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save

from tests.hostile.limits import Limits
from tests.processes import FORKED, ROOT
from vitpos.lab.cells import Cell
from vitpos.lab.format_version import FORMAT_VERSION
from vitpos.training.recipe import Recipe

VALUES = (
    None,
    True,
    0,
    -1,
    10**30,
    1e308,
    "",
    "x" * 5000,
    "\x1b[2J",
    "$x^$",
    "../../etc/passwd",
    [],
    [[]],
    {},
    {"a": []},
)
SPECS = (
    "vit(depth=1000000)",
    "image_folder(path='/etc/private')",
    "evil.py:Evil",
    "cifar100",
    "rope + rope",
    "none(",
    "os:system",
)
TENSORS = ("pos_embed", "blocks.0.attn.relative_position_bias_table", "blocks.0.attn.rel_pos_h", "freqs", "cls_token")


def tensors(rng):
    """A small ViT, some of whose tensors have odd shapes, values or names."""
    state = {"patch_embed.proj.weight": torch.randn(8, 3, 2, 2), "blocks.0.attn.qkv.weight": torch.randn(24, 8)}
    for name in rng.sample(TENSORS, rng.randint(0, 5)):
        shape = [rng.choice((0, 1, 2, 3, 5, 7, 8, 16)) for _ in range(rng.randint(0, 4))]
        state[name] = torch.randn(shape) * rng.choice((0, 1, 1e5, 1e30, float("nan")))
    if rng.random() < 0.7:
        state |= {"pos_embed": torch.randn(1, 7, 8), "cls_token": torch.zeros(1, 1, 8)}
    return state


def cell(rng):
    """The settings of a training with one or two values replaced."""
    made = asdict(Cell("mnist", "vit", "learned", 0, Recipe(), ("accuracy",))) | {"format_version": FORMAT_VERSION}
    made |= {"classes": list("0123456789"), "plugins": {}, "image_shape": [1, 28, 28]}
    for key in rng.sample(list(made), 2):
        made[key] = rng.choice(VALUES + SPECS)
    return made


def damaged(content, rng, fraction=0.6):
    """Bytes with some replaced, cut off, repeated or zeroed, in a fraction of all cases."""
    content, size = bytearray(content), len(content)
    if rng.random() > fraction:
        return bytes(content)
    first, second = sorted(rng.randrange(size) for _ in range(2)) if size else (0, 0)
    kind = rng.randrange(1, 5)
    if kind == 1:
        for _ in range(8):
            content[rng.randrange(min(size, 400))] = rng.randrange(256)
    return bytes(
        (content, content, content[:second], content + content[first:second], content[:first] + bytes(9))[kind]
    )


def make(folder, number, rng):
    """Writes one hostile file or folder; returns the words of a command on it."""
    kind, out = number % 6, folder / "out"
    if kind == 0:
        metadata = {"cell": json.dumps(cell(rng))} if rng.random() < 0.5 else {"config": "x"}
        (folder / "x.safetensors").write_bytes(damaged(save(tensors(rng), metadata), rng))
        return "inspect", folder / "x.safetensors", "--out", out, *(["--grid", "2x3"] * (rng.random() < 0.3))
    if kind in (1, 2):
        stream = io.BytesIO()
        if kind == 1:
            torch.save(
                {"model": tensors(rng), "args": cell(rng)}, stream, _use_new_zipfile_serialization=rng.random() < 0.5
            )
        else:
            np.savez(stream, **{name: tensor.numpy() for name, tensor in tensors(rng).items()})
        path = folder / ("x.pth" if kind == 1 else "x.npz")
        path.write_bytes(damaged(stream.getvalue(), rng))
        return "inspect", path, "--out", out, "--grid", "2x3"
    if kind == 3:
        (folder / "model.safetensors").write_bytes(save(tensors(rng)))
        names = ("image_size", "patch_size", "window_size", "num_heads", "model_type", "vision_config", "model_args")
        config = {name: rng.choice((*VALUES, 14, [4, 6])) for name in names}
        (folder / "config.json").write_bytes(damaged(json.dumps(config).encode(), rng))
        return "inspect", folder, "--out", out
    if kind == 4:
        run = folder / "run"
        own = Cell("mnist", "minimal", "none", 0, Recipe(), ("accuracy",))
        path = run / "cells" / own.folder_name
        path.mkdir(parents=True)
        text = 'data = "mnist"\nmodel = "minimal"\nencoding = "none"\n'
        definition = {"format_version": FORMAT_VERSION, "name": "x", "name_given": "x", "text": text, "settings": []}
        definition |= {"seeds": None}
        if rng.random() < 0.5:
            definition[rng.choice(list(definition))] = rng.choice(VALUES + SPECS)
        (run / "experiment.json").write_bytes(damaged(json.dumps(definition).encode(), rng, 0.3))
        settings = asdict(own) | {"format_version": FORMAT_VERSION} if rng.random() < 0.5 else cell(rng)
        (path / "cell.json").write_bytes(damaged(json.dumps(settings).encode(), rng, 0.3))
        numbers = {"accuracy": {"numbers": {"accuracy": rng.choice((*VALUES, 0.5, 0.9))}, "curves": {}, "reason": ""}}
        (path / "scores.json").write_text(json.dumps(rng.choice((numbers, {"accuracy": rng.choice(VALUES)}))))
        (path / "machine.json").write_text(json.dumps(rng.choice(({}, {"processor": "\x1b[2J"}, *VALUES))))
        (path / "log.csv").write_text(rng.choice(("epoch,loss\n1,0.5\n", "epoch,loss\n1", "\0", "epoch\n=1\n")))
        (path / "weights.safetensors").write_bytes(save(tensors(rng), {"cell": json.dumps(cell(rng))}))
        for name in ("plugins.json", ".lock", ".signature"):
            with contextlib.suppress(OSError):
                (os.mkfifo if rng.random() < 0.2 else os.mkdir if rng.random() < 0.2 else Path.touch)(run / name)
        return rng.choice(
            (
                ("report", run, "--out", folder / "page.html"),
                ("inspect", rng.choice((run, path)), "--out", out),
                ("evaluate", rng.choice((run, path)), "--with", "accuracy"),
                ("attack", path, "--with", "closed_form", "--out", out),
            )
        )
    lines = [f"{key} = {json.dumps(rng.choice(VALUES + SPECS))}" for key in ("data", "model", "encoding", "seeds", "x")]
    rng.shuffle(lines)
    (folder / "x.toml").write_bytes(damaged("\n".join(lines[: rng.randint(1, 5)]).encode(), rng))
    return "run", folder / "x.toml", "--dry-run"


def attempt(files, seed, report):
    """Runs commands on many files in this process, one after the other, and writes what went wrong to ``report``."""
    from vitpos.cli.main import main
    from vitpos.report import inspection_page

    inspection_page.plotting.png = lambda figure: b""  # drawing takes most of the time
    os.environ |= {"COLUMNS": "120", "NO_COLOR": "1"}
    limited, problems, codes, slowest = False, [], {}, 0.0
    home = report.parent / "files"
    home.mkdir()
    for number in range(files):
        rng = random.Random(f"{seed} {number}")
        torch.manual_seed(number)
        folder = home / str(number)
        folder.mkdir()
        words = list(map(str, make(folder, number, rng)))
        if not limited:
            limits, limited = Limits(str(report.parent)), True
            limits.seconds = 10**6  # each file is timed below
            limits()
        sys.argv = ["vitpos", *words]
        error, began = io.StringIO(), time.process_time()
        with contextlib.redirect_stderr(error), contextlib.redirect_stdout(io.StringIO()):
            try:
                main()
            except SystemExit as end:
                code = end.code or 0
            except BaseException as escaped:
                code = repr(escaped)
        took = time.process_time() - began
        slowest, codes[str(code)] = max(slowest, took), codes.get(str(code), 0) + 1
        lines = [line for line in error.getvalue().splitlines() if line.startswith("error: ")]
        if code not in (0, 1, 2) or "traceback is in" in error.getvalue() or took > 20 or (code and len(lines) != 1):
            problems.append([number, words[0], str(code), round(took, 1), error.getvalue()[-600:]])
        report.write_text(json.dumps({"done": number + 1, "codes": codes, "slowest": slowest, "problems": problems}))


def run_fuzz(tmp_path, files, seed, limit):
    """Runs `attempt` in a process with limits; asserts that it gets through all files without a problem."""
    report = tmp_path / "report.json"
    process = FORKED.Process(target=attempt, args=(files, seed, report))
    with contextlib.chdir(ROOT):
        process.start()
    process.join(limit)
    process.kill()
    found = json.loads(report.read_text())
    print(found)
    assert found["done"] == files and process.exitcode == 0, (process.exitcode, found)
    assert not found["problems"], found["problems"][:3]


def test_a_hundred_files_are_answered(tmp_path):
    run_fuzz(tmp_path, 90, seed=0, limit=250)


@pytest.mark.slow
def test_a_thousand_files_are_answered(tmp_path):
    run_fuzz(tmp_path, 1000, seed=1, limit=600)

"""Hostile files and inputs are answered in one line, within 20 s and 2 GB, without network access or reads elsewhere."""

import json
import os
import shutil
import struct
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from tests.hostile.limits import answer, refused
from vitpos.lab.cells import Cell
from vitpos.lab.format_version import FORMAT_VERSION
from vitpos.training.recipe import Recipe


def weights(path, **changes):
    """A weights file with the settings of a training in its metadata."""
    cell = asdict(Cell("mnist", "vit", "learned", 0, Recipe(), ("accuracy",))) | {"format_version": FORMAT_VERSION}
    cell |= {"classes": list(map(str, range(10))), "plugins": {}, "image_shape": [1, 28, 28]}
    save_file({"a": torch.zeros(3)}, path, {"cell": changes.pop("text", "") or json.dumps(cell | changes)})
    return path


CELLS = {
    "a folder of images": ({"data": "image_folder(path='/etc/private')", "classes": ["a", "b"]}, "--trust"),
    "a download": ({"data": "cifar100"}, "not downloaded"),
    "large data": ({"data": "noise(count=1000000000)"}, "too large"),
    "a wide model": ({"model": "vit(dim=16384, depth=4, heads=4)"}, "larger than the stored"),
    "a deep model": ({"model": "vit(depth=1000000)"}, "larger than the stored"),
    "code": ({"encoding": "evil.py:Evil"}, "not imported"),
    "no JSON": ({"text": "{"}, "damaged"),
    "a list": ({"text": "[1]"}, "damaged"),
    "wrong types": ({"train": {"lr": "x"}}, "damaged"),
    "no classes": ({"classes": None}, "damaged"),
    "plug-ins that are no records": ({"plugins": [1], "classes": ["a"]}, "classes"),
}


@pytest.mark.parametrize("name", CELLS)
def test_the_metadata_of_a_weights_file_orders_nothing(tmp_path, name):
    changes, match = CELLS[name]
    (tmp_path / "evil.py").write_text("raise SystemExit(77)")
    refused(tmp_path, "inspect", weights(tmp_path / "w.safetensors", **changes), "--out", tmp_path / "out", match=match)


def shared(path):
    value = {"t": torch.zeros(2)}
    for _ in range(7):
        value = {f"a{number}": value for number in range(10)}
    torch.save(value, path)


def self_reference(path):
    value = {"t": torch.zeros(2)}
    value |= dict.fromkeys("bcdef", value)
    torch.save(value, path)


def tuple_keys(path):
    key = ()
    for _ in range(40):
        key = (key, key)
    torch.save({"model": {"a": torch.zeros(1)}, "x": key}, path)


def long_header(path):
    header = json.dumps({"__metadata__": {"x": "y" * (90 << 20)}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header)


@pytest.mark.parametrize("make", [shared, self_reference, tuple_keys, long_header])
def test_a_checkpoint_cannot_cost_more_than_its_size(tmp_path, make):
    make(tmp_path / "x.pth")
    refused(tmp_path, "inspect", tmp_path / "x.pth", "--out", tmp_path / "out")


def test_fifos_and_devices_are_not_opened(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "device").symlink_to("/dev/zero")
    for name in ("fifo", "device"):
        refused(tmp_path, "inspect", tmp_path / name, "--out", tmp_path / "out")
    run = tmp_path / "run"
    run.mkdir()
    (run / "experiment.json").symlink_to("/dev/zero")
    refused(tmp_path, "report", run, "--out", tmp_path / "page.html", match="not a regular file")


WRONG = {
    "an empty argument": ["run", "quick", "--out", ""],
    "a seed of 5,000 digits": ["run", "quick", "--out", "out", "--seeds", "1" * 5000],
    "a long name": ["run", "quick", "--out", "x" * 300],
    "a learning rate of infinity": ["run", "quick", "--out", "out", "--set", "train.lr=inf"],
    "a spec of 20,000 terms": ["run", "quick", "--out", "out", "--set", "encoding=" + " + ".join(["none"] * 20_000)],
    "an absurd geometry": ["list", "encodings", "--geometry", "dim=99999,heads=1,depth=99999,grid=99999x99999"],
    "a missing file": ["compare", "there.safetensors", "missing.pth", "--grid", "4x4", "--out", "out"],
    "a nested list": ["run", "nested.toml", "--out", "out"],
    "an escape": ["run", "escape\x1b[31m.toml", "--out", "out"],
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_input_is_one_line(tmp_path, name):
    (tmp_path / "nested.toml").write_text("a = " + "[" * 5000 + "]" * 5000)
    save_file({"pos_embed": torch.randn(1, 17, 8)}, tmp_path / "there.safetensors")
    refused(tmp_path, *WRONG[name], match="missing.pth does not exist" if "missing.pth" in WRONG[name] else "")


def test_the_file_that_is_compared_with_a_missing_one_can_be_inspected(tmp_path):
    save_file({"pos_embed": torch.randn(1, 17, 8)}, tmp_path / "there.safetensors")
    assert answer(tmp_path, "inspect", "there.safetensors", "--grid", "4x4", "--out", "out").returncode == 0


def run_folder(folder, encodings="none"):
    """A small finished run, made once."""
    from vitpos import run

    document = {
        "name": "tiny",
        "data": "mnist(limit=64, test_limit=64)",
        "model": "minimal(dim=16)",
        "encoding": encodings,
    }
    run(document | {"train": {"epochs": 1}}, folder, workers=1)
    return folder


def lock_as_folder(run):
    (run / ".lock").unlink(missing_ok=True)
    (run / ".lock").mkdir()
    return "evaluate", run, "--with", "accuracy"


def truncated_log(run):
    (log,) = run.glob("cells/*/log.csv")
    log.write_text("epoch,loss,accuracy\n1,0.5")
    return "evaluate", run, "--with", "jigsaw"


def escape_in_machine(run):
    (file,) = run.glob("cells/*/scores.json")
    file.write_text('{"accuracy\\u001b[31m": []}')
    return "report", run, "--out", run.parent / "page.html"


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return run_folder(tmp_path_factory.mktemp("finished") / "run")


@pytest.mark.parametrize("change", [lock_as_folder, truncated_log, escape_in_machine])
def test_a_damaged_run_folder_is_one_line(finished, tmp_path, change):
    copy = shutil.copytree(finished, tmp_path / "run")
    refused(tmp_path, *change(copy))


@pytest.fixture(scope="module")
def two_cells(tmp_path_factory):
    return run_folder(tmp_path_factory.mktemp("two") / "run", ["none", "learned"])


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir, lambda path: path.symlink_to("nowhere")])
@pytest.mark.parametrize("command", ["evaluate", "inspect a cell"])
def test_weights_that_are_no_file_are_not_omitted(two_cells, tmp_path, make, command):
    run = shutil.copytree(two_cells, tmp_path / "run")
    (cell,) = run.glob("cells/learned*")
    (cell / "weights.safetensors").unlink()
    make(cell / "weights.safetensors")
    words = {"evaluate": (run, "--with", "jigsaw"), "inspect a cell": (cell, "--out", tmp_path / "out")}[command]
    done = answer(tmp_path, command.split()[0], *words)
    progress, _, error = done.stderr.rstrip("\n").rpartition("\n")
    assert done.returncode == 1 and error.startswith(f"error: {cell}") and ";" in error, done.stderr
    assert "error" not in progress


NAMES = ["$x^$", "=1+1", "\x1b[31mred", "<script>alert(1)</script>", "a" * 200]


def test_classes_with_odd_names_are_trained_evaluated_and_reported(tmp_path):
    rng = np.random.default_rng(0)
    for name in (name.replace("/", "∕") for name in NAMES):
        (tmp_path / "images" / name).mkdir(parents=True)
        for number in range(5):
            pixels = rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "images" / name / f"{number}.png")
    text = f"""data = "image_folder(path='{tmp_path / "images"}', size=8)"
model = "minimal(patch=4, dim=16)"
encoding = "none"
evaluations = ["accuracy", "confusion"]
notes = ["\\u001b[31m red"]
[train]
epochs = 1
"""
    (tmp_path / "odd.toml").write_text(text)
    done = answer(tmp_path, "run", tmp_path / "odd.toml", "--out", tmp_path / "out", "--workers", "1")
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "out" / "report.html").read_text()
    assert "<script>alert" not in page
    assert "\x1b" not in page
    assert not any(
        line.startswith(("=", "+", "@"))
        for line in (tmp_path / "out" / "results.csv").read_text().replace(",", "\n").split()
    )

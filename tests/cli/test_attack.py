"""``vitpos attack``, and attacks as part of an experiment, in real processes with real files."""

import csv
import io
import json
import shutil
import struct
from pathlib import Path

import pytest
import torch
from PIL import Image
from rich.console import Console

from tests.processes import vitpos
from vitpos.cli import tables
from vitpos.data.dataset import load
from vitpos.evaluations.result import Result
from vitpos.lab import runner
from vitpos.lab.cell_folder import CellFolder
from vitpos.lab.cell_models import build_model, load_models
from vitpos.lab.experiment import Experiment
from vitpos.lab.inspection_targets import find_targets
from vitpos.lab.results import Results
from vitpos.report import write_report
from vitpos.report.attack_figures import attacks

TEXT = """
data = "mnist(limit=64)"
model = "vit(patch=7, dim=64, depth=2, heads=2)"
encoding = ["learned", "rope"]
evaluations = ["accuracy", "closed_form(images=2)", "gradient_matching(images=1, steps=3)"]
[train]
epochs = 0
[[tables]]
title = "x"
columns = [{ label = "PSNR", evaluation = "closed_form(images=2)", metric = "psnr", percent = false }]
"""


@pytest.fixture(scope="module")
def out(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("attack")
    (folder / "small.toml").write_text(TEXT)
    runner.run(Experiment.load(str(folder / "small.toml")), folder / "out", workers=1)
    return folder / "out"


def test_an_experiment_stores_the_images_of_its_attacks_or_the_reason_for_none(out):
    runs = {cell.encoding: run for cell, run in Results.open(out).trained}
    found = runs["learned"].load_result("closed_form(images=2)")
    assert torch.equal(found.images["reconstruction"], found.images["target"]) and not found.reason
    assert found.images["target"].shape == (2, 1, 28, 28) and found.numbers["psnr_min"] > 200
    found = runs["rope"].load_result("closed_form(images=2)")
    assert not found.images and "added to tokens" in found.reason and found.numbers == {}
    found = runs["rope"].load_result("gradient_matching(images=1, steps=3)")
    assert found.images["trajectory"].shape == (1, 9, 1, 28, 28)
    page = write_report([out], out / "report.html").read_text()
    assert "Attack closed_form(images=2)" in page and "Intermediate images" in page and "added to tokens" in page


def test_captions_give_the_similarity_or_that_it_is_not_measured_yet(out, tmp_path):
    def names(run):
        drawn = [figure for title, _, figure in attacks(Results.open(run)) if title.startswith("Attack closed_form")]
        return [axes.get_title(loc="left") for figure in drawn for axes in figure.axes]

    (run,) = (run for cell, run in Results.open(out).trained if cell.encoding == "learned")
    known = run.results["closed_form(images=2)"].numbers
    target, learned = names(out)
    assert target == "target" and learned.startswith("learned")
    for number in (known["psnr"], known["psnr_mean_image"]):
        assert f"{number:.1f}" in learned
    shutil.copytree(out, tmp_path / "cut")
    (file,) = (path for path in (tmp_path / "cut").glob("cells/*/scores.json") if "learned" in str(path))
    scores = json.loads(file.read_text())
    scores["closed_form(images=2)"]["numbers"].pop("psnr")
    file.write_text(json.dumps(scores))
    assert "not measured" in names(tmp_path / "cut")[1]


def test_weights_after_no_epochs_are_the_initial_ones(out):
    (cell, run), *_ = Results.open(out).trained
    first = build_model(cell, load(cell.data)).state_dict()
    assert run.log == [] and all(torch.equal(first[name], tensor) for name, tensor in run.load_weights().items())


def test_attacking_a_run_writes_numbers_and_images(out, tmp_path):
    done = vitpos("attack", out, "--with", "closed_form(images=2)", "april(images=1)", "--out", tmp_path / "found")
    assert done.returncode == 0, done.stderr
    assert "Not applicable to rope" in done.stdout and "april_block=True" in done.stdout
    with (tmp_path / "found" / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["encoding"] for row in rows} == {"learned"} and {row["evaluation"] for row in rows} == {
        "closed_form(images=2)"
    }
    assert float(next(row["value"] for row in rows if row["metric"] == "psnr")) > 200
    (file,) = (tmp_path / "found").glob("*.png")
    with Image.open(file) as drawn:
        assert drawn.width > 100


def test_a_weights_file_alone_can_be_attacked(out, tmp_path):
    (_, run), *_ = Results.open(out).trained
    shutil.copy(run.path / "weights.safetensors", tmp_path / "copy.safetensors")
    done = vitpos(
        "attack", tmp_path / "copy.safetensors", "--with", "closed_form(images=1)", "--out", tmp_path / "found"
    )
    assert done.returncode == 0, done.stderr


def test_image_files_can_be_attacked(out, tmp_path):
    pixels = torch.randint(256, (28, 28), dtype=torch.uint8)
    Image.fromarray(pixels.numpy()).save(tmp_path / "mine.png")
    words = ("--with", "closed_form", "--image", tmp_path / "mine.png", "--out", tmp_path / "found")
    done = vitpos("attack", out, *words)
    assert done.returncode == 0, done.stderr
    with (tmp_path / "found" / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert all(float(row["value"]) > 200 for row in rows if row["metric"] == "psnr_min")
    assert {(row["experiment"], row["evaluation"]) for row in rows} == {("attack mine.png", "closed_form(images=1)")}
    again = vitpos("attack", out, *words)
    assert again.returncode == 2 and "give a new folder" in again.stderr


def broken_files(folder: Path) -> dict[str, Path]:
    header = json.dumps({"x": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    (folder / "foreign.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(4))
    (folder / "cut.safetensors").write_bytes(b"\x08\x00\x00")
    (folder / "text.png").write_text("no image")
    Image.new("L", (20, 28)).save(folder / "narrow.png")
    (folder / "empty").mkdir()
    return {path.name: path for path in folder.iterdir()}


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["foreign.safetensors", "--with", "closed_form"], 2, "give data"),
        (["cut.safetensors", "--with", "closed_form"], 2, "give a ViT checkpoint"),
        (["text.png", "--with", "closed_form"], 2, "give a ViT checkpoint"),
        (
            ["OUT", "--with", "closed_form(scenario='shuffled')"],
            2,
            "'plain', 'find_shuffled', 'find_original', not 'shuffled'",
        ),
        (["empty", "--with", "closed_form"], 2, "contains no checkpoint"),
        (["OUT", "--with", "closedform"], 2, "did you mean 'closed_form'?"),
        (["OUT", "--with", "closed_form", "--image", "narrow.png"], 2, "28x20 pixels"),
        (["OUT", "--with", "closed_form", "--image", "text.png"], 2, "cannot be read"),
    ],
)
def test_mistakes_are_reported_in_one_line(out, tmp_path, words, code, message):
    paths = broken_files(tmp_path) | {"OUT": out}
    done = vitpos("attack", *(paths.get(word, word) for word in words), "--out", tmp_path / "found")
    assert done.returncode == code and message in done.stderr, done.stderr
    assert len(done.stderr.strip().splitlines()) == 1 and not (tmp_path / "found").exists()


def test_a_weights_file_contains_its_cell_and_classes(out):
    (cell, run), *_ = Results.open(out).trained
    found, weights, classes = CellFolder.from_weights(run.path / "weights.safetensors")
    assert found == run.cell and found.folder_name == cell.folder_name and set(weights) == set(run.load_weights())
    assert classes == run.classes == tuple("0123456789")


def test_models_that_differ_by_a_swept_value_have_different_names_everywhere(tmp_path):
    (tmp_path / "two.toml").write_text(
        "data = 'mnist(limit=64)'\nmodel = 'vit(patch=(7, 14), dim=16, depth=1, heads=2)'\nencoding = 'learned'\n"
        "[train]\nepochs = 0\ndefense = ['', 'prune(fraction=0.5)']\n"
    )
    runner.run(Experiment.load(str(tmp_path / "two.toml")), tmp_path / "run", workers=1)
    done = vitpos("attack", tmp_path / "run", "--with", "closed_form(images=1)", "--out", tmp_path / "found")
    assert done.returncode == 0, done.stderr
    with (tmp_path / "found" / "results.csv").open() as file:
        assert {row["train.defense"] for row in csv.DictReader(file)} == {"", "prune(fraction=0.5)"}
    assert {path.name[11:34] for path in (tmp_path / "found").glob("*.png")} == {
        "train.defense-none-seed",
        "train.defense-prune-fra",
    }
    seen = [name.split(" · ")[0] for name, _ in find_targets(tmp_path / "run")]
    assert sorted(seen) == ["learned, train.defense=none", "learned, train.defense=prune(fraction=0.5)"]
    narrow = Console(width=80, file=(printed := io.StringIO()))
    cells = [cell for cell, _ in load_models(tmp_path / "run")]
    numbers = {f"metric_{number}": 123.4 for number in range(12)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "output", narrow)
        tables.show_attacks([(cell, "closed_form", Result(numbers)) for cell in cells])
    assert all(name in printed.getvalue() for name in numbers) and printed.getvalue().count("123.4") == 24

"""`vitpos attack`, and attacks as part of an experiment: real processes, real files."""

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

from tests.test_cli import vitpos
from vitpos.attacks.pictures import own
from vitpos.cli import tables
from vitpos.cli.inspect import find_targets
from vitpos.data.dataset import load
from vitpos.evaluations.result import Result
from vitpos.lab import runner
from vitpos.lab.cell_models import build_model, load_models
from vitpos.lab.experiment import Experiment
from vitpos.lab.results import Results
from vitpos.lab.store import CellFolder
from vitpos.report import write_report
from vitpos.report.attack_figures import attacks

TEXT = """
data = "mnist(limit=64)"
model = "vit(patch=7, dim=64, depth=2, heads=2)"
encoding = ["learned", "rope"]
evaluations = ["accuracy", "projection(images=2)", "matching(images=1, steps=3)"]
[train]
epochs = 0
[[tables]]
title = "x"
columns = [{ label = "PSNR", evaluation = "projection(images=2)", metric = "psnr", percent = false }]
"""


@pytest.fixture(scope="module")
def out(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("attack")
    (place / "small.toml").write_text(TEXT)
    runner.run(Experiment.load(str(place / "small.toml")), place / "out", workers=1)
    return place / "out"


def test_an_experiment_keeps_the_pictures_of_its_attacks_or_why_there_are_none(out):
    runs = {cell.encoding: run for cell, run in Results.open(out).trained}
    found = runs["learned"].load_result("projection(images=2)")
    assert torch.equal(found.images["reconstruction"], found.images["target"]) and not found.reason
    assert found.images["target"].shape == (2, 1, 28, 28) and found.numbers["psnr_worst"] > 200
    found = runs["rope"].load_result("projection(images=2)")
    assert not found.images and "added to tokens" in found.reason and found.numbers == {}
    found = runs["rope"].load_result("matching(images=1, steps=3)")
    assert found.images["trajectory"].shape == (1, 9, 1, 28, 28)
    page = write_report([out], out / "report.html").read_text()
    assert "Attack projection(images=2)" in page and "Intermediate images" in page and "added to tokens" in page


def test_pictures_tell_how_near_they_came_also_where_the_numbers_are_not_there_yet(out, tmp_path):
    def names(run):
        drawn = [figure for title, _, figure in attacks(Results.open(run)) if title.startswith("Attack proj")]
        return [axes.get_title(loc="left") for figure in drawn for axes in figure.axes]

    (run,) = (run for cell, run in Results.open(out).trained if cell.encoding == "learned")
    known = run.results["projection(images=2)"].numbers
    near = f"PSNR {known['psnr']:.1f} dB (gray image {known['psnr_grey']:.1f}), SSIM 1.00"
    assert names(out) == ["target", f"learned, mean of 2: {near}"]
    shutil.copytree(out, tmp_path / "cut")
    (file,) = (path for path in (tmp_path / "cut").glob("cells/*/scores.json") if "learned" in str(path))
    scores = json.loads(file.read_text())
    scores["projection(images=2)"]["numbers"].pop("psnr")
    file.write_text(json.dumps(scores))
    assert names(tmp_path / "cut") == ["target", "learned, PSNR not measured yet"]


def test_untrained_weights_are_the_first_ones(out):
    (cell, run), *_ = Results.open(out).trained
    first = build_model(cell, load(cell.data)).state_dict()
    assert run.log == [] and all(torch.equal(first[name], tensor) for name, tensor in run.load_weights().items())


def test_a_run_is_attacked_and_numbers_and_pictures_are_written(out, tmp_path):
    done = vitpos("attack", out, "--with", "projection(images=2)", "april(images=1)", "--out", tmp_path / "found")
    assert done.returncode == 0, done.stderr
    assert (
        "Not applicable to rope: no trained vector is added" in done.stdout
        and "build vit(april_block=True)" in done.stdout
    )
    with (tmp_path / "found" / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["encoding"] for row in rows} == {"learned"} and {row["evaluation"] for row in rows} == {
        "projection(images=2)"
    }
    assert float(next(row["value"] for row in rows if row["metric"] == "psnr")) > 200
    (picture,) = (tmp_path / "found").glob("*.png")
    with Image.open(picture) as drawn:
        assert drawn.width > 100


def test_weights_alone_are_enough(out, tmp_path):
    (_, run), *_ = Results.open(out).trained
    shutil.copy(run.path / "weights.safetensors", tmp_path / "copy.safetensors")
    done = vitpos(
        "attack", tmp_path / "copy.safetensors", "--with", "projection(images=1)", "--out", tmp_path / "found"
    )
    assert done.returncode == 0, done.stderr


def test_pictures_of_ones_own_are_found_too(out, tmp_path):
    pixels = torch.randint(256, (28, 28), dtype=torch.uint8)
    Image.fromarray(pixels.numpy()).save(tmp_path / "mine.png")
    words = ("--with", "projection", "--image", tmp_path / "mine.png", "--out", tmp_path / "found")
    done = vitpos("attack", out, *words)
    assert done.returncode == 0, done.stderr
    with (tmp_path / "found" / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert all(float(row["value"]) > 200 for row in rows if row["metric"] == "psnr_worst")
    assert {(row["experiment"], row["evaluation"]) for row in rows} == {("attack mine.png", "projection(images=1)")}
    again = vitpos("attack", out, *words)
    assert again.returncode == 2 and "give a new folder" in again.stderr, "pictures of one and numbers of another"


def test_pictures_of_sixteen_bits_are_those_of_eight(out, tmp_path):
    (cell, make), *_ = load_models(out)
    pixels = torch.randint(256, (28, 28)).numpy()
    Image.fromarray(pixels.astype("uint8")).save(tmp_path / "8.png")
    Image.fromarray((257 * pixels).astype("uint16")).save(tmp_path / "16.png")
    data = own(make(), load(cell.data), [tmp_path / "8.png", tmp_path / "16.png"])
    assert torch.equal(*data.test.images)


def broken_files(place: Path) -> dict[str, Path]:
    header = json.dumps({"x": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    (place / "foreign.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(4))
    (place / "cut.safetensors").write_bytes(b"\x08\x00\x00")
    (place / "text.png").write_text("no picture")
    Image.new("L", (20, 28)).save(place / "narrow.png")
    (place / "empty").mkdir()
    return {path.name: path for path in place.iterdir()}


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["foreign.safetensors", "--with", "projection"], 2, "holds no model of a 'vitpos run'; give the folder"),
        (["cut.safetensors", "--with", "projection"], 2, "damaged, or was not written by 'vitpos run'"),
        (["text.png", "--with", "projection"], 2, "damaged, or was not written by 'vitpos run'"),
        (["OUT", "--with", "projection(setting='d')"], 2, "takes one of 'a', 'b', 'c', not 'd'"),
        (["empty", "--with", "projection"], 2, "not the folder of an experiment"),
        (["OUT", "--with", "projektion"], 2, "did you mean 'projection'?"),
        (["OUT", "--with", "projection", "--image", "narrow.png"], 2, "has 28x20 pixels, and the model takes 28x28"),
        (["OUT", "--with", "projection", "--image", "text.png"], 2, "cannot be read"),
    ],
)
def test_mistakes_are_told_in_one_line(out, tmp_path, words, code, message):
    places = broken_files(tmp_path) | {"OUT": out}
    done = vitpos("attack", *(places.get(word, word) for word in words), "--out", tmp_path / "found")
    assert done.returncode == code and message in done.stderr, done.stderr
    assert len(done.stderr.strip().splitlines()) == 1 and not (tmp_path / "found").exists()


def test_a_file_of_weights_tells_what_it_is(out):
    (cell, run), *_ = Results.open(out).trained
    found, weights, classes = CellFolder.from_weights(run.path / "weights.safetensors")
    assert found == run.cell and found.folder_name == cell.folder_name and set(weights) == set(run.load_weights())
    assert classes == run.classes == tuple("0123456789")


def test_models_that_differ_by_a_swept_value_are_told_apart_wherever_they_are_named(tmp_path):
    (tmp_path / "two.toml").write_text(
        "data = 'mnist(limit=64)'\nmodel = 'vit(patch=(7, 14), dim=16, depth=1, heads=2)'\nencoding = 'learned'\n"
        "[train]\nepochs = 0\ndefense = ['', 'prune(fraction=0.5)']\n"
    )
    runner.run(Experiment.load(str(tmp_path / "two.toml")), tmp_path / "run", workers=1)
    done = vitpos("attack", tmp_path / "run", "--with", "projection(images=1)", "--out", tmp_path / "found")
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
        tables.show_attacks([(cell, "projection", Result(numbers)) for cell in cells])
    assert all(name in printed.getvalue() for name in numbers) and printed.getvalue().count("123.4") == 24

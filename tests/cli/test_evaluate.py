"""``vitpos evaluate``, ``attack`` and ``inspect`` of checkpoints from elsewhere, in real processes with real files."""

import csv
import json

import pytest

import vitpos as library
from tests.lab import foreign
from tests.processes import vitpos
from tests.references import peer, pretend_torchvision_operators
from vitpos.cli.main import app
from vitpos.errors import InputError


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return foreign.train(tmp_path_factory.mktemp("trained") / "run")


@pytest.fixture(scope="module")
def checkpoint(trained, tmp_path_factory):
    return foreign.save_timm(library.load(trained), tmp_path_factory.mktemp("timm") / "timm")


def run(*words, **options):
    peer("timm")
    return vitpos(*words, before=pretend_torchvision_operators, **options)


def test_a_checkpoint_gets_a_table_results_csv_and_a_report(trained, checkpoint, tmp_path):
    spec = "jigsaw(positions='stay', per='image')"
    done = run(
        "evaluate",
        checkpoint,
        "--data",
        foreign.DATA,
        "--with",
        "accuracy",
        spec,
        "confusion",
        "--out",
        tmp_path / "out",
    )
    assert done.returncode == 0, done.stderr
    expected = library.evaluate(trained, foreign.DATA, ["accuracy", spec])
    with (tmp_path / "out" / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    found = {(row["evaluation"], row["metric"]): float(row["value"]) for row in rows if not row["x"]}
    assert found == {(one, name): value for one, r in expected.items() for name, value in r.numbers.items()}
    assert {row["model"] for row in rows} == {"timm (vit_tiny_patch16_224)"}
    page = (tmp_path / "out" / "report.html").read_text()
    assert "mean (0.1307)" in page
    assert "vitpos evaluate" in page
    assert "Test images" in page and "Confusion matrices" in page and "not available" not in page
    assert "mean (0.1307), std (0.3081), from timm" in done.stderr
    assert "jigsaw" in done.stdout
    again = run("evaluate", checkpoint, "--data", foreign.DATA, "--with", "accuracy", "--out", tmp_path / "out")
    assert again.returncode == 2
    assert "already holds results" in again.stderr


def test_json_is_all_that_standard_output_has(checkpoint, tmp_path):
    words = ["--data", foreign.DATA, "--with", "accuracy", "--json"]
    done = run("evaluate", checkpoint, *words, "--out", tmp_path / "out")
    printed = json.loads(done.stdout)
    assert printed["rows"][0]["evaluation"] == "accuracy"
    assert any("mean" in note for note in printed["notes"])


def test_a_run_keeps_its_own_data_and_results(trained, tmp_path):
    run_folder = trained.parent.parent
    done = vitpos("evaluate", run_folder, "--with", "jigsaw")
    assert done.returncode == 0, done.stderr
    assert "jigsaw" in (run_folder / "results.csv").read_text()
    for option, value in (("--data", foreign.DATA), ("--out", tmp_path / "out")):
        done = vitpos("evaluate", run_folder, "--with", "accuracy", option, value)
        assert done.returncode == 2
        assert option in done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nothing.safetensors", "--data", "mnist", "--out", "out"], "neither the folder of an experiment"),
        (["CHECKPOINT", "--data", "mnist"], "--out is missing"),
        (["CHECKPOINT", "--out", "out"], "give data"),
        (["timm:no_such_model", "--data", "mnist", "--out", "out"], "timm has no model"),
        (["CHECKPOINT", "--data", "photographs", "--out", "out"], "channels"),
        (["CHECKPOINT", "--data", "mnist", "--out", "out", "--classes", "no.txt"], "cannot be read"),
        (
            ["CHECKPOINT", "--data", "mnist", "--out", "out", "--architecture", "vit_base_patch16_224"],
            "larger than the stored",
        ),
    ],
)
def test_mistakes_are_one_line_and_write_nothing(checkpoint, tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    peer("timm")
    given = [str(checkpoint) if word == "CHECKPOINT" else word for word in words]
    with pytest.raises(InputError, match=message) as error:
        app(["evaluate", *given, "--with", "accuracy"], standalone_mode=False)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "out").exists()


def test_attack_and_inspect_run_a_checkpoint_on_given_data(checkpoint, tmp_path):
    words = ["--data", foreign.DATA, "--out", tmp_path / "attacked", "--with", "closed_form(images=2)"]
    done = run("attack", checkpoint, *words)
    assert done.returncode == 0, done.stderr
    rows = (tmp_path / "attacked" / "results.csv").read_text().splitlines()
    assert {row["metric"]: float(row["value"]) for row in csv.DictReader(rows)}["psnr"] > 60
    assert [*(tmp_path / "attacked").glob("*.png")]
    done = run("inspect", checkpoint, "--data", foreign.DATA, "--images", "20", "--out", tmp_path / "inspected")
    assert done.returncode == 0, done.stderr
    numbers = json.loads((tmp_path / "inspected" / "inspect.json").read_text())
    assert len(numbers["model"]["probe_r2"]) == foreign.DEPTH + 1
    assert len(numbers["model"]["attention_distance"]) == len(numbers["model"]["position_share"]) == foreign.DEPTH
    assert numbers["format"] == "timm"
    assert "table" in numbers


def test_without_data_only_the_tensors_of_a_checkpoint_are_inspected(checkpoint, tmp_path):
    done = run("inspect", checkpoint, "--out", tmp_path / "inspected")
    assert done.returncode == 0, done.stderr
    assert "model" not in json.loads((tmp_path / "inspected" / "inspect.json").read_text())
    done = run("attack", checkpoint, "--out", tmp_path / "attacked", "--with", "closed_form")
    assert done.returncode == 2
    assert "give data" in done.stderr

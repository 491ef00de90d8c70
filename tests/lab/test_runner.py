"""``vitpos.run`` from Python: progress, results, and why a cell failed."""

import json
from dataclasses import replace

import pytest

import vitpos
from tests.processes import python
from vitpos.data.dataset import load
from vitpos.errors import InputError, RunError
from vitpos.lab import cell_folder, cell_models, runner
from vitpos.lab.cell_models import load_models
from vitpos.lab.format_version import FORMAT_VERSION
from vitpos.lab.results import Results

TEXT = """
data = "stripes(count=40)"
model = "vit(patch=(2, 4), dim=8, depth=1, heads=2)"
encoding = ["none", "learned"]
evaluations = ["accuracy", "confusion"]
seeds = [0, 1]
train.epochs = 1
"""


@pytest.fixture
def small(tmp_path):
    (tmp_path / "small.toml").write_text(TEXT)
    return str(tmp_path / "small.toml")


def test_a_run_shows_its_progress_and_returns_its_results(small, tmp_path, capsys):
    results = vitpos.run(small, tmp_path / "out", workers=1)
    shown = capsys.readouterr()
    assert shown.out == "" and shown.err.count("trained in") == 4, "one line per cell where there is no terminal"
    text = repr(results)
    assert text.startswith("small: 4 of 4 cells done") and "learned" in text and "±" in text
    assert len(results.rows) == 4 and not results.pending
    assert results.rows == Results.open(tmp_path / "out").rows
    vitpos.run(small, tmp_path / "out", workers=1)
    assert capsys.readouterr().err.count("already done") == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"experiment": 3}, "there is no experiment of type int; give a name"),
        ({"seeds": 3}, r"seeds takes a list such as \[0, 1, 2\], not 3"),
        ({"workers": -1}, "workers takes a whole number from 1, not -1"),
        ({"workers": 1.5}, "workers takes a whole number from 1, not 1.5"),
        ({"encoding": None}, "encoding of type NoneType cannot be stored with a run; give the class or a spec"),
    ],
)
def test_a_wrong_argument_of_run_is_one_line(small, tmp_path, arguments, message):
    with pytest.raises(InputError, match=message):
        vitpos.run(**({"experiment": small, "out": tmp_path / "out"} | arguments))
    assert not (tmp_path / "out").exists()


def test_an_unexpected_error_fails_its_cell_alone_and_is_the_reason_of_the_run(small, tmp_path, monkeypatch):
    fit = runner.fit

    def breaks(model, data, recipe, *, seed, **options):
        if seed == 1:
            raise RuntimeError("out of luck")
        return fit(model, data, recipe, seed=seed, **options)

    monkeypatch.setattr(runner, "fit", breaks)
    with pytest.raises(RunError, match=r"2 of 4 cells failed, the first \(none, seed 1\): unexpected .*out of luck"):
        vitpos.run(small, tmp_path / "out", workers=1)
    assert {row["seed"] for row in Results.open(tmp_path / "out").rows} == {0}
    assert len(logs := list(tmp_path.rglob("error.log"))) == 2 and "out of luck" in logs[0].read_text()
    monkeypatch.setattr(runner, "fit", fit)
    assert not vitpos.run(small, tmp_path / "out", workers=1).pending
    assert not list(tmp_path.rglob("error.log"))


def test_the_scores_of_a_cell_are_read_as_often_whatever_the_number_of_cells(small, tmp_path, monkeypatch):
    reads = []
    read_json = cell_folder.read_json
    monkeypatch.setattr(cell_folder, "read_json", lambda path: reads.append(path) or read_json(path))
    vitpos.run(small, tmp_path / "out", workers=1)
    scores = [path for path in reads if path.name == "scores.json"]
    assert len(scores) == 4 * 2, "by the second evaluation, which adds to the first, and when the cell is done"


@pytest.mark.parametrize(
    ("version", "remedy"), [(None, "again"), (2, "run the experiment again"), (FORMAT_VERSION + 1, "upgrade")]
)
def test_a_folder_of_another_format_is_refused_in_one_line(small, tmp_path, version, remedy):
    vitpos.run(small, tmp_path / "out", workers=1)
    for path in [tmp_path / "out" / "experiment.json", *tmp_path.rglob("cell.json")]:
        stored = json.loads(path.read_text())
        assert stored.pop("format_version") == FORMAT_VERSION
        path.write_text(json.dumps(stored if version is None else {"format_version": version, **stored}))
    for use in (Results.open, load_models, lambda path: vitpos.run(small, path)):
        with pytest.raises(InputError, match=rf"has format version {version or 1}, and this vitpos reads.*{remedy}"):
            use(tmp_path / "out")
    with pytest.raises(InputError, match="has format version"):
        load_models(next((tmp_path / "out" / "cells").iterdir()))


def test_weights_of_other_classes_than_the_datas_are_refused(small, tmp_path, monkeypatch):
    results = vitpos.run(small, tmp_path / "out", workers=1)
    assert results.trained[0][1].classes == ("horizontal", "vertical")
    changed = replace(load("stripes(count=40)"), classes=("horizontal", "vertical", "diagonal"))
    monkeypatch.setattr(cell_models, "load", lambda spec: changed)
    (_, make), *_ = load_models(tmp_path / "out")
    with pytest.raises(InputError, match=r"trained on 2 classes \(horizontal, vertical\), and data .* has 3 classes"):
        make()


def test_a_model_and_data_of_different_classes_do_not_train_or_evaluate():
    data = load("stripes(count=40)")
    model = vitpos.MODELS.build("cnn", data.shape, 5, "none")
    expected = "a model with 5 outputs does not fit data .* with 2 classes"
    with pytest.raises(InputError, match=expected):
        next(vitpos.fit(model, data, vitpos.Recipe(epochs=1)))
    with pytest.raises(InputError, match=expected):
        vitpos.EvalContext(model, data).evaluate("accuracy")


def test_a_script_that_runs_at_its_top_level_gets_the_remedy(small, tmp_path):
    text = TEXT.replace("stripes(count=40)", "mnist(limit=64, test_limit=64)").replace("(2, 4)", "14")
    (tmp_path / "small.toml").write_text(text)
    (tmp_path / "script.py").write_text(f"import vitpos\nvitpos.run({small!r}, {str(tmp_path / 'out')!r}, workers=2)\n")
    done = python(tmp_path / "script.py")
    assert done.returncode == 1 and "if __name__ == '__main__'" in done.stderr and "workers=1" in done.stderr

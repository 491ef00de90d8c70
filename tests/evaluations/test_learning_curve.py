"""Test accuracy after each epoch, recorded without changing the training."""

import csv

import pytest
import torch

import vitpos
from tests.evaluate import evaluate, numbers_of
from vitpos.data.dataset import load
from vitpos.errors import InputError
from vitpos.files import read_tensors
from vitpos.lab.cell_models import build_model
from vitpos.lab.events import Observer, TrainProgress
from vitpos.report import write_report
from vitpos.training.loop import fit
from vitpos.training.recipe import Recipe

TEXT = {
    "name": "curves",
    "data": "mnist(limit=240, test_limit=300)",
    "model": "vit(patch=(7, 14), dim=16, depth=1, heads=2, drop_path=0.2, weight_init='xavier')",
    "encoding": "learned + mjp(mask_ratio=0.25)",
    "train": {"epochs": 3, "lr": 0.01, "batch_size": 40, "augment": "crop(pad=1)", "log_test_accuracy": True},
    "evaluations": ["accuracy", "learning_curve"],
}
PLAIN = {"train": TEXT["train"] | {"log_test_accuracy": False}, "evaluations": "accuracy"}


def run(out, observer=None, **settings):
    return vitpos.run(TEXT, out, workers=1, observer=observer or Observer(), **settings)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    return run(tmp_path_factory.mktemp("recorded") / "out")


def test_the_curve_is_the_accuracy_of_the_model_as_it_was_after_each_epoch(recorded):
    ((cell, folder),) = recorded.trained
    data = load(cell.data)
    model, expected = build_model(cell, data), {}
    for state in fit(model, data, cell.train, seed=cell.seed):
        if state.epoch:
            expected[float(state.epoch)] = numbers_of("accuracy", model, data)["accuracy"]
    result = folder.results["learning_curve"]
    assert result.curves == {"accuracy": expected} and expected[1.0] < expected[3.0]
    assert result.numbers["mean_accuracy"] == pytest.approx(sum(expected.values()) / 3)
    assert expected[3.0] == folder.results["accuracy"].numbers["accuracy"]
    with (recorded.path / "results.csv").open() as file:
        rows = {row["x"]: float(row["value"]) for row in csv.DictReader(file) if row["metric"] == "accuracy"}
    assert [rows[x] for x in ("1", "2", "3")] == list(expected.values())
    assert [record["test_accuracy"] for record in folder.log] == list(expected.values())


def test_recording_changes_no_weight_and_no_other_number(recorded, tmp_path):
    plain = run(tmp_path / "plain", **PLAIN)
    ((_, with_curve),), ((_, without),) = recorded.trained, plain.trained
    ours, theirs = (read_tensors(folder.path / "weights.safetensors")[0] for folder in (with_curve, without))
    assert ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert with_curve.results["accuracy"] == without.results["accuracy"]
    for one, other in zip(with_curve.log, without.log, strict=True):
        assert (one["loss"], one["accuracy"]) == (other["loss"], other["accuracy"]) and "test_accuracy" not in other


def test_an_interrupted_training_ends_with_the_same_curve_and_weights(recorded, tmp_path):
    class Interrupt(Observer):
        batches = 0

        def on_event(self, event):
            self.batches += isinstance(event, TrainProgress)
            if self.batches == 8:  # in the second epoch of six batches
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "out", Interrupt())
    resumed = run(tmp_path / "out")
    ((_, ours),), ((_, theirs),) = resumed.trained, recorded.trained
    assert ours.results == theirs.results and resumed.rows == recorded.rows
    assert (ours.path / "weights.safetensors").read_bytes() == (theirs.path / "weights.safetensors").read_bytes()


def test_a_training_that_recorded_nothing_is_one_line_before_anything_is_trained(tmp_path):
    with pytest.raises(InputError, match=r"'learning_curve' needs .*; train with train\.log_test_accuracy = true"):
        run(tmp_path / "out", train=PLAIN["train"])
    assert not (tmp_path / "out").exists()
    data = load("stripes(count=10)")
    model = vitpos.MODELS.build("cnn", data.shape, 2, "none")
    assert evaluate("learning_curve", model, data, Recipe(log_test_accuracy=True)).curves == {"accuracy": {}}


def test_the_report_draws_the_curve(recorded):
    page = write_report([recorded], recorded.path / "page.html").read_text()
    assert "Accuracy by epoch (learning_curve)" in page

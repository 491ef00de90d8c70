"""The four-step transfer as it is shipped, on a few images: train, resample to a larger grid, fine-tune."""

import pytest
import torch

import vitpos
from vitpos.encodings._table_interpolation import resize_table
from vitpos.errors import InputError
from vitpos.lab.events import Observer
from vitpos.lab.experiment import Experiment

FEW = "mnist(limit=60, test_limit=60)"


def test_models_of_one_experiment_are_fine_tuned_by_the_next_at_twice_the_size(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    quiet = {"workers": 1, "observer": Observer(), "seeds": [1]}
    vitpos.run("learned-resize-modes", "runs/learned-resize-modes", **quiet, data=FEW, evaluations="accuracy")
    results = vitpos.run("learned-transfer", "runs/learned-transfer", **quiet, data=f"{FEW} + resize(size=56)")
    sources = {
        (folder.cell.encoding, folder.cell.seed): folder.load_weights()
        for _, folder in vitpos.Results.open(tmp_path / "runs" / "learned-resize-modes").trained
    }
    assert len(results.trained) == 5
    for cell, folder in results.trained:
        before, after = dict(sources[cell.encoding, cell.seed]), folder.load_weights()
        if cell.encoding == "learned":
            resampled = resize_table(before.pop("encoding.table")[0], (14, 14))
            moved = (after.pop("encoding.table")[0] - resampled).abs().max()
            limit = {0: 0.0, 1: 1.1 * 0.0002 * cell.train.position_lr_factor}[cell.train.epochs]  # one step of Adam
            assert (moved > 0) == (limit > 0) and moved <= limit
        assert all(torch.equal(after[name], before[name]) for name in before) == (cell.train.epochs == 0)


def test_without_the_first_experiment_the_message_says_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"train.weights is 'runs/learned-resize-modes', where nothing is trained"):
        vitpos.run(Experiment.load("learned-transfer"), tmp_path / "out", observer=Observer())

"""What a run keeps."""

import json
import math

import numpy as np
import torch

from vitpos.evaluations.result import Result
from vitpos.lab.cell_folder import CellFolder


def test_a_number_that_is_not_finite_is_omitted_and_its_evaluation_counts_as_done(tmp_path):
    run = CellFolder(tmp_path)
    run.save_result("translation", Result({"accuracy": 0.5, "logit_error": math.nan, "token_error": math.inf}))
    run.save_result("ood", Result({"aurra": math.nan}, curves={"aurra": {0.5: math.nan, 1.0: 0.25}}))
    assert run.results == {
        "translation": Result({"accuracy": 0.5}),
        "ood": Result(curves={"aurra": {1.0: 0.25}}, reason="not finite: aurra = nan"),
    }
    assert "NaN" not in (text := (tmp_path / "scores.json").read_text()) and list(json.loads(text)) == list(run.results)


def test_scalars_of_torch_and_numpy_are_stored_as_numbers(tmp_path):
    run, half = CellFolder(tmp_path), np.float32(0.5)
    run.save_result("made_up", Result({"a": torch.tensor(0.5), "b": half}, {"c": {half: half, torch.tensor(2): 1}}))
    assert run.results == {"made_up": Result({"a": 0.5, "b": 0.5}, {"c": {0.5: 0.5, 2.0: 1}})}


def test_a_result_comes_back_with_its_arrays_images_and_reason(tmp_path):
    run = CellFolder(tmp_path)
    result = Result(
        {"psnr": 30.0},
        {"accuracy": {0.5: 0.75, 1.0: 0.875}},
        {"confusion": torch.rand(3, 3, dtype=torch.float64)},
        {"target": torch.rand(2, 1, 4, 4)},
        "half of it",
    )
    run.save_result("made_up", result)
    found = run.load_result("made_up")
    assert (found.numbers, found.curves, found.reason) == (result.numbers, result.curves, result.reason)
    assert torch.equal(found.arrays["confusion"], result.arrays["confusion"])
    assert torch.equal(found.images["target"], (255 * result.images["target"]).round().byte())
    assert run.load_result("never") == Result()
    run.save_result("made_up", Result({"psnr": 31.0}))
    assert run.load_result("made_up") == Result({"psnr": 31.0}), "nothing of the older result is left"

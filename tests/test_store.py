"""What a run keeps."""

import json
import math

from vitpos.lab.store import CellFolder


def test_a_number_that_does_not_exist_is_missing_and_its_evaluation_counts_as_asked(tmp_path):
    run = CellFolder(tmp_path)
    run.save_result("translation", {"accuracy": 0.5, "logits": math.nan, "tokens": math.inf})
    run.save_result("outliers", {"aurra": math.nan})
    assert run.scores == {"translation": {"accuracy": 0.5}, "outliers": {}}
    assert "NaN" not in (text := (tmp_path / "scores.json").read_text()) and json.loads(text) == run.scores

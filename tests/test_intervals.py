"""How sure a number is, and what is beyond noise."""

import math
from dataclasses import replace

import pytest
import torch

from tests.references import peer
from vitpos import lab
from vitpos.errors import UserError
from vitpos.experiment import Experiment
from vitpos.metrics.statistics import half_width, paired, quantile
from vitpos.report import write_report
from vitpos.report.advice import advice
from vitpos.summary import summarise

TEXT = """
data = "stripes(count=40)"
model = "vit(patch=(2, 4), dim=8, depth=1, heads=2)"
encoding = ["none", "learned"]
seeds = [0, 1, 2]
train.epochs = 1
[[tables]]
title = "Compared"
against = "none"
heat = true
columns = [
  { label = "accuracy", evaluation = "accuracy", better = "more" },
  { label = "as a multiple", evaluation = "accuracy", percent = false, ratio = true },
]
"""


def make(text=TEXT):
    return Experiment.make({"name": "tiny", "asked": "tiny", "text": text, "settings": [], "seeds": None})


def test_an_interval_is_the_textbooks():
    values = [4.8, 5.1, 5.3, 4.9, 5.4]  # mean 5.1, deviation √.065, t of 4 degrees 2.776
    assert half_width(values) == pytest.approx(2.776 * math.sqrt(0.065 / 5), rel=1e-6)
    assert half_width([1.0]) == math.inf and half_width([2.0, 2.0]) == 0
    expected = 2.023 * torch.arange(40.0).std().item() / math.sqrt(40)  # t of 39 degrees
    assert half_width(list(range(40))) == pytest.approx(expected, rel=3e-4)


def test_quantiles_are_those_of_students_distribution():
    for freedom, textbook in ((1, 12.706), (30, 2.042), (40, 2.021), (60, 2.000), (120, 1.980), (1000, 1.962)):
        assert quantile(freedom) == pytest.approx(textbook, abs=6e-4)
    student = peer("scipy.stats").t
    for freedom in range(1, 500):
        assert quantile(freedom) == pytest.approx(student.ppf(0.975, freedom), abs=6e-4), freedom


@pytest.mark.parametrize("count", [2, 3, 5])
def test_an_interval_holds_the_truth_nineteen_times_of_twenty(count):
    generator = torch.Generator().manual_seed(0)
    draws = torch.randn(4000, count, generator=generator, dtype=torch.float64)
    held = [abs(sum(row) / count) <= half_width(row) for row in draws.tolist()]
    assert sum(held) / 4000 == pytest.approx(0.95, abs=0.012)


def test_pairs_are_made_by_seed():
    ours, theirs = {0: 0.9, 1: 0.8, 5: 0.1}, {1: 0.7, 0: 0.8, 7: 0.0}
    found = paired(ours, theirs)
    assert found.mean == pytest.approx(0.1) and found.seeds == 2 and found.beyond_noise
    assert not paired({0: 0.9}, {0: 0.1}).beyond_noise, "one seed tells nothing of noise"
    assert paired({0: 1.0}, {1: 1.0}) is None
    assert not paired({0: 1.0, 1: 2.0, 2: 3.0}, {0: 2.0, 1: 2.0, 2: 2.0}).beyond_noise


def test_a_table_compares_its_rows_with_one_of_them(tmp_path):
    experiment = make()
    folder = lab.run(experiment, tmp_path / "out", workers=1)
    for number, (cell, run) in enumerate(folder.runs):  # known numbers instead of what so short a training gives
        run.add_scores("accuracy", {"accuracy": 0.5 + 0.01 * cell.seed + (0.2 if number >= 3 else 0.0)})
    base, row = summarise(folder, experiment.tables[0])
    assert base.figures[0].difference is None and base.figures[0].mark == ""
    assert row.figures[0].difference.mean == pytest.approx(0.2) and row.figures[0].mark == " ▲"
    assert row.figures[0].difference_text == "+20.00 [20.00, 20.00] ▲"
    assert row.figures[0].interval.startswith("95 % interval 68.52 to 73.48: 70.00 (seed 0)")
    assert base.figures[1].text == "0.51 ± 0.01" and row.figures[1].text == "0.71 ± 0.01 (1.39×)"
    said = ["accuracy: learned (71.00 ± 1.00 %).", "In all, learned is among the best in 1 of 1."]
    assert list(advice(experiment.tables[0], [base, row])) == [("", said)]
    alike = [replace(row, figures=(replace(row.figures[0], by_seed={0: 0.5, 1: 0.53, 2: 0.51}), row.figures[1])), base]
    assert next(advice(experiment.tables[0], alike))[1][0].endswith("not told apart from it by these seeds: none.")
    page = write_report([tmp_path / "out"], tmp_path / "page.html").read_text()
    assert "At a glance: Compared" in page and "Which should I use?" in page
    assert "Differences from none" in page and "+20.00 [20.00, 20.00] ▲" in page


def test_a_table_can_only_compare_with_a_row_that_it_has():
    with pytest.raises(UserError, match=r"against 'rope', which none of its cells has"):
        make(TEXT.replace('against = "none"', 'against = "rope"'))

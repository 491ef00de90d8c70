"""How sure a number is, and what is beyond noise."""

from dataclasses import replace

import pytest

from tests.report import runs
from vitpos.errors import InputError
from vitpos.evaluations.result import Result
from vitpos.lab import runner
from vitpos.lab.experiment import Experiment
from vitpos.lab.summary import summarize
from vitpos.lab.table_text import format_estimate
from vitpos.report import write_report
from vitpos.report.best_encodings import compare_encodings

TEXT = runs.TEXT.replace(
    '[{ label = "right", evaluation = "accuracy", better = "higher" }]',
    """[
  { label = "accuracy", evaluation = "accuracy", better = "higher" },
  { label = "as a multiple", evaluation = "accuracy", percent = false, show_ratio = true },
]""",
)


def make(text=TEXT):
    return Experiment.from_definition(
        {"name": "tiny", "name_given": "tiny", "text": text, "settings": [], "seeds": None}
    )


def test_a_table_compares_its_rows_with_one_of_them(tmp_path):
    experiment = make()
    results = runner.run(experiment, tmp_path / "out", workers=1)
    for number, (cell, run) in enumerate(results.trained):  # known numbers instead of what so short a training gives
        run.save_result("accuracy", Result({"accuracy": 0.5 + 0.01 * cell.seed + (0.2 if number >= 3 else 0.0)}))
        results.refresh(cell)
    base, row = summarize(results, experiment.tables[0])
    assert base.estimates[0].difference is None and base.estimates[0].direction == 0
    assert row.estimates[0].difference.mean == pytest.approx(0.2) and row.estimates[0].direction == 1
    assert row.estimates[0].interval == pytest.approx((0.6852, 0.7348), abs=5e-5)
    assert format_estimate(row.estimates[0], mark=True) == "71.00 ± 1.00 ▲"
    assert [format_estimate(one.estimates[1]) for one in (base, row)] == ["0.51 ± 0.01", "0.71 ± 0.01 (1.39×)"]
    (group,) = compare_encodings(experiment.tables[0], [base, row])
    assert (group.columns[0].best, group.columns[0].num_different, group.leaders) == ("learned", 1, ("learned",))
    noisy = replace(row.estimates[0], by_seed={0: 0.5, 1: 0.53, 2: 0.51})
    (group,) = compare_encodings(experiment.tables[0], [replace(row, estimates=(noisy, row.estimates[1])), base])
    assert (group.columns[0].best, group.columns[0].tied, group.num_different) == ("learned", ("none",), 0)
    page = write_report([tmp_path / "out"], tmp_path / "page.html").read_text()
    assert "At a glance: Compared" in page and "Which should I use?" in page
    assert "Differences from none" in page and "+20.00 [20.00, 20.00] ▲" in page


def test_a_table_can_only_compare_with_a_row_that_it_has():
    with pytest.raises(InputError, match=r"none of its cells has the baseline 'rope'"):
        make(TEXT.replace('baseline = "none"', 'baseline = "rope"'))

"""What a page and its tables make of stored scores: known numbers, put into the folders that a run leaves behind."""

import math
import re
from dataclasses import replace

import pytest
import torch

from tests.report.runs import SERIES, SWEPT, TEXT, of_two_sets, page_of, shown, stored
from vitpos.cli.tables import output, show_evaluation, show_table
from vitpos.evaluations import EVALUATIONS
from vitpos.evaluations.result import Result
from vitpos.lab.summary import Estimate, remaining_table
from vitpos.lab.table_text import format_estimate
from vitpos.report import write_report
from vitpos.report.page import prose


@pytest.mark.parametrize("strange", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_none_is_missing_and_breaks_nothing(tmp_path, strange):
    values = {"none": [0.5, strange, 0.7], "learned": [strange] * 3}
    folder = stored(tmp_path / "out", lambda cell: {"accuracy": {"accuracy": values[cell.encoding][cell.seed]}})
    base, row = shown(folder)
    assert base.estimates[0].values == (0.5, 0.7) and format_estimate(base.estimates[0]) == "60.00 ± 14.14"
    assert format_estimate(row.estimates[0]) == "–" and row.estimates[0].difference is None
    with output.capture() as printed:
        show_table(folder, folder.experiment.tables[0])
    assert "60.00 ± 14.14" in printed.get() and "–" in printed.get()
    assert "60.00 ± 14.14" in page_of(folder)


@pytest.mark.parametrize("percent", ["", ", percent = false"])
@pytest.mark.parametrize(
    ("seeds", "caption"),
    [
        ({"none": [0], "learned": [0]}, "One seed."),
        ({"none": [0, 2], "learned": [0, 1]}, "Mean ± standard deviation over 2 seeds."),
        ({"none": [1], "learned": [0, 1, 2]}, "Mean ± standard deviation over 1 to 3 seeds."),
        ({"none": [1], "learned": []}, "One seed."),
    ],
)
def test_the_caption_of_a_table_gives_its_number_of_seeds(tmp_path, seeds, caption, percent):
    text = TEXT.replace('better = "higher"', f'better = "higher"{percent}')
    numbers = {"accuracy": {"accuracy": 0.5}, "cost": {"parameters": 1.5}}
    folder = stored(tmp_path / "out", lambda cell: numbers if cell.seed in seeds[cell.encoding] else None, text)
    with output.capture() as printed:
        show_table(folder, folder.experiment.tables[0])
        show_evaluation(folder, "cost")
    assert " ".join(printed.get().split()).count(caption) == 2
    page = page_of(folder)
    assert page.count(caption) == 2, "below the table, and below what else is measured"
    assert caption in repr(folder).splitlines()
    others = {"One seed.", "Mean ± standard deviation"} - {caption, caption.partition(" over")[0]}
    assert not any(other in text for other in others for text in (printed.get(), page, repr(folder)))


def test_every_column_says_what_it_is_and_where_that_is_defined(tmp_path):
    text = TEXT.replace(
        "columns = [", "columns = [{ label = 'sizes', evaluation = 'resolution_curve', metric = 'auc' }, "
    ).replace("train.epochs = 1", 'train.epochs = 1\nevaluations = ["accuracy", "resolution_curve"]')
    page = page_of(stored(tmp_path / "out", lambda cell: {"accuracy": {"accuracy": 0.5}}, text))  # no sizes yet
    assert '<th class="number" title="resolution_curve: auc">sizes, %</th>' in page
    assert '<li>sizes, % = <a href="#1-resolution_curve">resolution_curve</a>: auc</li>' in page
    assert '<li>right, % = <a href="#1-accuracy">accuracy</a>: accuracy</li>' in page
    assert 'id="1-resolution_curve"' in page and 'id="1-accuracy"' in page
    assert 'id="1-resolution"' in page, "the definition of resolution_curve refers to it"
    assert page.count('id="1-accuracy"') == 1


def test_two_experiments_on_one_page_have_definitions_of_their_own(tmp_path):
    folder = stored(tmp_path / "out", lambda cell: {"accuracy": {"accuracy": 0.5}})
    page = write_report([folder.path, folder.path], tmp_path / "page.html").read_text()
    assert 'href="#2-accuracy"' in page and page.count('id="1-accuracy"') == page.count('id="2-accuracy"') == 1


def test_intervals_are_in_the_page_beside_the_numbers(tmp_path):
    values = {"none": [0.5, 0.51, 0.52], "learned": [0.7, 0.71, 0.72]}
    folder = stored(tmp_path / "out", lambda cell: {"accuracy": {"accuracy": values[cell.encoding][cell.seed]}})
    page = page_of(folder)
    assert '71.00 ± 1.00 ▲<span class="below">[68.52, 73.48]</span></td>' in page
    assert "Mean ± standard deviation over 3 seeds. Below in brackets: the 95 % interval of the mean" in page
    counted = replace(shown(folder)[0].estimates[0], by_seed={0: 64.0, 1: 64.0}, percent=False)
    assert counted.interval is None and format_estimate(counted) == "64", (
        "a number that no seed changes has no interval"
    )


@pytest.mark.parametrize("notes", ["", 'notes = ["Read me."]'])
def test_the_source_is_named_with_notes_and_without(tmp_path, notes):
    text = f'published_source = "Nobody, 1999"\n{notes}\n{TEXT}'
    assert page_of(stored(tmp_path / "out", of_two_sets, text)).count("Nobody, 1999") == 1


@pytest.mark.parametrize("metrics", [1, 3], ids=["metrics across", "metrics down"])
def test_numbers_that_no_table_shows_are_listed_by_evaluation(tmp_path, metrics):
    more = {
        "two_class": {f"m{number}": 0.25 for number in range(metrics)},
        "random_shifts": {"worst_case_accuracy": 0.5},
        "token_diversity": {"blank_fraction": math.nan},
    }
    page = page_of(stored(tmp_path / "out", lambda cell: of_two_sets(cell) | more)).partition("Also measured")[2]
    first, _, rest = page.partition("</details>")
    assert "<code>two_class</code> m0" in first and "<code>random_shifts</code> worst_case_accuracy" in rest
    down = '<th class="number">none</th>', '<td class="name">m0</td>'
    across = '<th class="number">m0</th>', '<td class="name">none</td>'
    assert all(part in first for part in (down if metrics == 3 else across))
    assert ">0.25</td>" in first and 'href="#1-two_class"' in first and "blank_fraction</summary>" not in rest


@pytest.mark.parametrize("spec", SWEPT | SERIES)
def test_metrics_stand_out_in_their_definitions(spec):
    entry = EVALUATIONS.describe(EVALUATIONS.parse(spec)[0].name)
    bold = " ".join(re.findall("<b>(.+?)</b>:", prose(entry.definition)))
    found = (SWEPT | SERIES)[spec]
    assert (
        all(f"{metric} by " in bold for metric in found.curves) if spec in SERIES else set(found) <= set(bold.split())
    )
    assert "``" not in prose(entry.definition) and "<b>" not in prose("It is none: of these.")


def test_a_deviation_does_not_seem_to_be_nothing():
    number = Estimate({0: 0.4789, 1: 0.4811, 2: 0.48}, None, percent=False)
    assert format_estimate(number) == "0.4800 ± 0.0011"
    assert format_estimate(replace(number, by_seed={0: 0.5, 1: 0.51, 2: 0.52})) == "0.51 ± 0.01"
    assert format_estimate(replace(number, by_seed={0: 0.48, 1: 0.48})) == "0.48"


def test_points_of_curves_and_entries_of_arrays_are_columns_and_all_else_is_in_also_measured(tmp_path):
    columns = (
        "{ label = 'half', evaluation = 'resolution_curve', metric = 'accuracy', x = 0.5 }, "
        "{ label = '1 as 0', evaluation = 'confusion', metric = 'confusion', at = [1, 0] }, "
        "{ label = 'none', evaluation = 'confusion', metric = 'confusion', at = [2, 0] }, "
    )
    text = TEXT.replace("columns = [", f"columns = [{columns}").replace(
        "train.epochs = 1", 'train.epochs = 1\nevaluations = ["accuracy", "resolution_curve", "confusion"]'
    )
    found = {
        "accuracy": {"accuracy": 0.5},
        "resolution_curve": Result({"auc": 0.3}, curves={"accuracy": {0.5: 0.25, 1.0: 0.75}}),
        "confusion": Result(arrays={"confusion": torch.tensor([[0.875, 0.125], [0.0625, 0.9375]])}),
    }
    folder = stored(tmp_path / "out", lambda cell: found, text)
    assert [format_estimate(estimate) for estimate in shown(folder)[0].estimates][:3] == [
        "25.00 ± 0.00",
        "6.25 ± 0.00",
        "–",
    ]
    others = {(column.evaluation, column.name) for column in remaining_table(folder).columns}
    assert others == {("resolution_curve", "auc"), ("resolution_curve", "accuracy at 1")}
    rows = [(row["metric"], row["x"], row["value"]) for row in folder.rows if row["evaluation"] == "resolution_curve"]
    assert rows[:3] == [("auc", "", 0.3), ("accuracy", 0.5, 0.25), ("accuracy", 1, 0.75)]
    page = page_of(folder)
    assert (
        "resolution_curve: accuracy at 0.5" in page
        and "confusion: confusion[1, 0]" in page
        and "Confusion matrices, " in page
    )

"""What a page and its tables make of stored scores: known numbers, put into the folders that a run leaves behind."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from vitpos.cli.tables import output, show_table
from vitpos.data.dataset import load
from vitpos.evaluations import EVALUATIONS
from vitpos.evaluations.result import Result
from vitpos.lab import runner
from vitpos.lab.cell_models import build_model, load_model
from vitpos.lab.experiment import Experiment
from vitpos.lab.results import Results
from vitpos.lab.store import CellFolder, ExperimentFolder
from vitpos.lab.summary import Estimate, format_estimate, grouped, measured, summarize
from vitpos.report import write_report
from vitpos.report.comparison import compare_encodings, figure_groups, line_groups, row_colors
from vitpos.report.curves import curves
from vitpos.report.figures import figures
from vitpos.report.page import prose

TEXT = """
data = "stripes(count=40)"
model = "vit(patch=(2, 4), dim=8, depth=1, heads=2)"
encoding = ["none", "learned"]
seeds = [0, 1, 2]
train.epochs = 1
[[tables]]
title = "Compared"
baseline = "none"
heatmap = true
columns = [{ label = "right", evaluation = "accuracy", better = "higher" }]
"""
TWO = TEXT.replace('data = "stripes(count=40)"', 'data = ["stripes(count=40)", "stripes(count=60)"]')  # sets of data
CONFUSION = Result(arrays={"confusion": torch.full((2, 2), 0.5)})
LOG = [{"epoch": 1, "loss": 1.0, "accuracy": 0.5, "seconds": 1.0}]


def stored(path, score, text=TEXT):
    """The results of an experiment whose cells have the scores that ``score(cell)`` gives; None is an untrained cell."""
    experiment = Experiment.from_origin(
        {"name": "tiny", "name_given": "tiny", "text": text, "settings": [], "seeds": None}
    )
    with ExperimentFolder.create_locked(path, experiment) as folder:
        for cell in experiment.cells:
            found = score(cell)
            if found is not None:
                run = CellFolder.create(folder.path / "cells" / cell.folder_name, cell)
                runner.finish(run, build_model(cell, load(cell.data)), load(cell.data), LOG)
                for evaluation, numbers in found.items():
                    run.save_result(evaluation, numbers if isinstance(numbers, Result) else Result(numbers))
    return Results(folder)


def shown(folder):
    """The rows of its first table."""
    return summarize(folder, folder.experiment.tables[0])


def page_of(folder):
    return write_report([folder], folder.path / "page.html").read_text()


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


def compared(folder):
    """The comparisons of its first table, by name of the group."""
    return {group.name: group for group in compare_encodings(folder.experiment.tables[0], shown(folder))}


@pytest.mark.parametrize(
    ("learned", "untested"),
    [({0: 0.9}, ("none",)), ({0: 0.9, 1: 0.91, 2: 0.92}, ())],
    ids=["one seed finished", "three seeds finished"],
)
def test_one_seed_beside_several_shows_no_difference(tmp_path, learned, untested):
    values = {"none": {0: 0.5, 1: 0.51, 2: 0.52}, "learned": learned}

    def score(cell):
        found = values[cell.encoding].get(cell.seed)
        return None if found is None else {"accuracy": {"accuracy": found}}

    folder = stored(tmp_path / "out", score)
    group = compared(folder)[""]
    assert (group.columns[0].best, group.columns[0].untested) == ("learned", untested)
    assert group.single_seed == (["learned"] if untested else [])
    assert (group.num_tested, group.leaders) == ((0, ()) if untested else (1, ("learned",))), "one seed is no merit"
    assert ("too few common seeds to compare it with none" in page_of(folder)) is bool(untested)


@pytest.mark.parametrize(("learned", "tied"), [(0.9, ()), (0.5, ("learned",))])
def test_where_every_encoding_has_one_seed_only_equal_values_are_tied(tmp_path, learned, tied):
    values = {"none": 0.5, "learned": learned}
    text = TEXT.replace("[0, 1, 2]", "[0]")
    folder = stored(tmp_path / "out", lambda cell: {"accuracy": {"accuracy": values[cell.encoding]}}, text)
    group = compared(folder)[""]
    assert group.columns[0].tied == tied and group.columns[0].equal is bool(tied)
    assert group.single_seed == ["none", "learned"] and not group.has_seeds
    assert "One seed cannot separate" in page_of(folder)


THREE = TEXT.replace('"learned"]', '"learned", "sinusoidal"]').replace(
    "columns = [",
    'columns = [{ label = "error", evaluation = "token_diversity", metric = "blank_fraction", better = "lower" }, ',
)
NOISE = (0.0, 0.03, 0.01)  # by seed


@pytest.mark.parametrize(
    ("offsets", "best", "counts", "leaders"),
    [
        (
            {"none": 0.0, "learned": 0.001, "sinusoidal": 0.002},
            [("none", ("learned", "sinusoidal")), ("sinusoidal", ("none", "learned"))],
            (2, 0),
            (),
        ),
        (
            {"none": 0.0, "learned": 0.3, "sinusoidal": 0.302},
            [("none", ()), ("sinusoidal", ("learned",))],
            (2, 2),
            ("none", "sinusoidal", "learned"),
        ),
    ],
    ids=["no encoding differs", "two differ from the third"],
)
def test_a_comparison_reports_that_no_difference_was_found(tmp_path, offsets, best, counts, leaders):
    def score(cell):
        value = 0.5 + offsets[cell.encoding] + NOISE[cell.seed - list(offsets).index(cell.encoding)]
        return {"accuracy": {"accuracy": value}, "token_diversity": {"blank_fraction": value}}

    text = THREE.replace("train.epochs = 1", 'train.epochs = 1\nevaluations = ["accuracy", "token_diversity"]')
    folder = stored(tmp_path / "out", score, text)
    group = compared(folder)[""]
    assert [(one.best, one.tied) for one in group.columns] == best
    assert (group.num_tested, group.num_different) == counts and group.leaders == leaders
    assert "no difference found" in page_of(folder)


def of_two_sets(cell):
    """Close together on the first set and on the second, which is easier."""
    right = {"none": 0.3, "learned": 0.31} if cell.data == "stripes(count=40)" else {"none": 0.91, "learned": 0.9}
    return {"accuracy": {"accuracy": right[cell.encoding] + 0.001 * cell.seed}}


def test_a_comparison_is_about_one_set_of_data(tmp_path):
    folder = stored(tmp_path / "out", of_two_sets, TWO)
    found = {name: group.columns[0].best for name, group in compared(folder).items()}
    assert found == {"trained on stripes(count=40)": "learned", "trained on stripes(count=60)": "none"}
    assert page_of(folder).count("<h4>trained on stripes") == 2


def test_groups_are_told_apart_by_all_that_is_not_the_encoding(tmp_path):
    text = TWO.replace("train.epochs = 1", "train.lr = [0.1, 0.2]")
    folder = stored(tmp_path / "out", of_two_sets, text)
    groups = grouped(shown(folder))
    assert list(groups)[:2] == ["trained on stripes(count=40), lr 0.1", "trained on stripes(count=40), lr 0.2"]
    assert len(groups) == 4 and all(len(rows) == 2 for rows in groups.values())


def shades(figure):
    """The level of each cell of a map of colours, rows by columns."""
    return figure.axes[0].images[0].get_array().filled(np.nan)


def test_a_map_of_colours_tells_encodings_of_one_set_of_data_apart(tmp_path):
    folder = stored(tmp_path / "out", of_two_sets, TWO)
    maps = {title: figure for title, _, figure in figures(folder) if title.startswith("At a glance")}
    assert list(maps) == [f"At a glance: Compared · trained on stripes(count={count})" for count in (40, 60)]
    assert [shades(figure).tolist() for figure in maps.values()] == [[[0], [1]], [[1], [0]]]


MODELS = TWO.replace('"vit(patch=(2, 4), dim=8, depth=1, heads=2)"', '["minimal(patch=2, dim=8)", "minimal(patch=4)"]')


def test_rows_share_a_map_with_other_encodings_or_else_with_the_same_data(tmp_path):
    found = figure_groups(shown(stored(tmp_path / "several", of_two_sets, MODELS)))
    assert len(found) == 4 and all(list(rows) == ["none", "learned"] for rows in found.values())
    text = MODELS.replace('["none", "learned"]', '"none"')
    found = figure_groups(shown(stored(tmp_path / "single", of_two_sets, text)))
    assert list(found) == ["trained on stripes(count=40)", "trained on stripes(count=60)"]
    names = ["minimal(patch=2, dim=8) · none", "minimal(patch=4) · none"]
    assert all(list(rows) == names for rows in found.values())


def test_a_few_lines_of_the_same_data_share_a_figure(tmp_path):
    folder = stored(tmp_path / "out", of_two_sets, MODELS)
    found = line_groups(shown(folder))
    assert list(found) == ["trained on stripes(count=40)", "trained on stripes(count=60)"]
    assert all(len(rows) == 4 and set(rows) < set(row_colors(folder)) for rows in found.values())


SWEPT = {
    f"shuffle(mask_ratio={ratio})": {"accuracy": 0.9 - ratio, "consistency": 1 - ratio} for ratio in (0.15, 0.5, 1.0)
}
SERIES = {
    "resolution_curve": Result(curves={"accuracy": dict.fromkeys((0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0), 0.5)}),
    "resolution_curve(coords='extrapolate')": Result(
        curves={"accuracy": dict.fromkeys((0.5, 0.75, 1.0, 1.5, 2.0), 0.4)}
    ),
    "translation_curve": Result(
        curves={m: dict.fromkeys((1.0, 2.0, 3.0, 4.0), 0.5) for m in ("accuracy", "consistency")}
    ),
    "corruption(severities=(1, 3, 5))": Result(curves={"error": dict.fromkeys((1.0, 3.0, 5.0), 0.5)}),
    "translation": Result(curves={"token_error": {1.0: 0.1, 2.0: 0.2, 3.0: 0.3}}),
}


def drawn(folder):
    """The axes of each curve's figures, by title."""
    return {title: [figure.axes[0] for row in rows for figure in row] for title, _, rows in curves(folder)}


@pytest.mark.parametrize(
    ("title", "label", "scale", "points"),
    [
        ("Accuracy by mask_ratio (shuffle)", "mask_ratio", "linear", [(0.15, 75), (0.5, 40), (1, -10)]),
        ("Consistency by mask_ratio (shuffle)", "mask_ratio", "linear", [(0.15, 85), (0.5, 50), (1, 0)]),
        ("Accuracy by size (resolution_curve)", "size, relative to training", "log", [(0.5, 50), (0.75, 50), (1, 50)]),
        ("Accuracy by shift in pixels (translation_curve)", "shift in pixels", "linear", [(1, 50), (2, 50), (3, 50)]),
        (
            "Consistency by shift in pixels (translation_curve)",
            "shift in pixels",
            "linear",
            [(1, 50), (2, 50), (3, 50)],
        ),
        ("Error by severity (corruption)", "severity", "linear", [(1, 50), (3, 50), (5, 50)]),
        ("Token error by layer (translation)", "layer", "linear", [(1, 0.1), (2, 0.2), (3, 0.3)]),
    ],
)
def test_a_curve_is_drawn_against_what_its_numbers_are(tmp_path, title, label, scale, points):
    found = drawn(stored(tmp_path / "out", lambda cell: SWEPT | SERIES))
    axes = found[title][0]
    assert (axes.get_xlabel(), axes.get_xscale()) == (label, scale)
    assert np.allclose(axes.lines[0].get_xydata()[:3], points) and len(found) == 7


def test_ways_of_asking_are_told_apart_by_what_differs(tmp_path):
    moved = {"translation_curve(border='wrap')": Result(curves={"accuracy": dict.fromkeys((1.0, 2.0, 3.0, 4.0), 0.4)})}
    cut = {spec.replace(")", ", grid=(2, 2))"): numbers for spec, numbers in SWEPT.items()}
    found = drawn(stored(tmp_path / "out", lambda cell: SERIES | moved | SWEPT | cut))
    one, other = found["Accuracy by shift in pixels (translation_curve)"]
    assert (one.get_title(), other.get_title()) == (
        "border='zeros'",
        "border='wrap'",
    ) and one.get_ylim() == other.get_ylim()
    assert [axes.get_title() for axes in found["Accuracy by mask_ratio (shuffle)"]] == [
        "default options",
        "grid=(2, 2)",
    ]


def test_curves_of_two_sets_of_data_are_two_figures(tmp_path):
    folder = stored(tmp_path / "out", lambda cell: of_two_sets(cell) | SWEPT, TWO)
    axes = drawn(folder)["Accuracy by mask_ratio (shuffle)"]
    assert [one.get_title() for one in axes] == ["trained on stripes(count=40)", "trained on stripes(count=60)"]
    assert [[text.get_text() for text in one.texts] for one in axes] == [["none", "learned"]] * 2
    assert page_of(folder).count('alt="Training curves"') == 4


def test_of_many_lines_the_best_have_colours_and_all_have_names(tmp_path):
    names = ["none", *(f"learned(std={number}.0)" for number in range(9))]
    text = TEXT.replace('["none", "learned"]', str(names)).replace("[0, 1, 2]", "[0]")

    def score(cell):
        return {"accuracy": {"accuracy": names.index(cell.encoding) / 20}} | SWEPT

    folder = stored(tmp_path / "out", score, text)
    shade = row_colors(folder)
    assert list(shade) == [*names[:3:-1], "none"] and len(set(shade.values())) == 7
    notes = {title: note for title, note, _ in figures(folder)}
    assert all(
        "In color: none, dashed" in notes[title] for title in ("Accuracy by mask_ratio (shuffle)", "Training curves")
    )
    (axes, *_) = drawn(folder)["Accuracy by mask_ratio (shuffle)"]
    places = [text.get_position()[1] for text in axes.texts]
    assert sorted(text.get_text() for text in axes.texts) == sorted(names)
    assert min(np.diff(sorted(places))) > 0.05


def test_position_similarities_are_one_section_without_what_is_not_finite(tmp_path):
    text = TWO.replace('"learned"', '"learned", "sinusoidal", "learned(std=1.0)"')
    folder = stored(tmp_path / "out", lambda cell: {"accuracy": {"accuracy": 0.5}}, text)
    for cell, run in folder.trained:
        if cell.encoding == "learned(std=1.0)":  # a training that went astray
            model = load_model(run)
            model.encoding.table.data.fill_(math.nan)
            (run.path / "position_table.safetensors").unlink()
            runner.finish(run, model, load(cell.data), LOG)
    (rows,) = (rows for title, _, rows in figures(folder) if title == "Position similarity")
    assert [[figure.axes[0].get_title() for figure in row] for row in rows] == [
        [f"trained on stripes(count={count})\n{name}" for name in ("learned", "sinusoidal")] for count in (40, 60)
    ]


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
    assert "over 3 seeds; below in brackets the 95 % interval of the mean" in page
    counted = replace(shown(folder)[0].estimates[0], by_seed={0: 64.0, 1: 64.0}, percent=False)
    assert counted.interval is None and format_estimate(counted) == "64", (
        "a number that no seed changes has no interval"
    )


@pytest.mark.parametrize("notes", ["", 'notes = ["Read me."]'])
def test_the_source_is_named_with_notes_and_without(tmp_path, notes):
    text = f'published_source = "Nobody, 1999"\n{notes}\n{TEXT}'
    assert page_of(stored(tmp_path / "out", of_two_sets, text)).count("Nobody, 1999") == 1


@pytest.mark.parametrize("metrics", [1, 3], ids=["metrics across", "metrics down"])
def test_what_no_table_shows_is_told_by_evaluation(tmp_path, metrics):
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


def test_what_is_unfinished_changes_no_name_and_no_colour(tmp_path):
    def score(cell):
        return of_two_sets(cell) | SWEPT if cell.data == "stripes(count=40)" and cell.encoding == "learned" else None

    (axes,) = drawn(stored(tmp_path / "some", score, TWO))["Accuracy by mask_ratio (shuffle)"]
    whole = drawn(stored(tmp_path / "all", lambda cell: of_two_sets(cell) | SWEPT, TWO))[
        "Accuracy by mask_ratio (shuffle)"
    ]
    assert axes.get_title() == "trained on stripes(count=40)" == whole[0].get_title()
    assert axes.lines[0].get_color() == whole[0].lines[1].get_color()


def test_a_page_is_made_of_stored_files_alone(tmp_path, monkeypatch):
    folder = stored(tmp_path / "out", lambda cell: of_two_sets(cell) | {"confusion": CONFUSION})
    monkeypatch.setattr("vitpos.data.DATASETS.build", lambda *about: pytest.fail("data were loaded"))
    monkeypatch.setattr("vitpos.models.MODELS.build", lambda *about: pytest.fail("a model was built"))
    load.cache_clear()
    titles = [title for title, _, _ in figures(Results.open(folder.path))]
    assert {"Test images", "Position similarity", "Confusion matrices, trained on stripes(count=40)"} <= set(titles)
    assert "Figure not available" not in titles and page_of(folder).count('alt="Position similarity"') == 1


def test_a_damaged_file_leaves_out_its_figure_alone(tmp_path):
    folder = stored(tmp_path / "out", of_two_sets)
    for path in folder.path.rglob("position_table.safetensors"):
        path.write_bytes(b"damaged")
    titles = [title for title, _, _ in figures(folder)]
    assert titles.count("Figure not available") == 1 and "Training curves" in titles


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
    others = {(column.evaluation, column.name) for column in measured(folder).columns}
    assert others == {("resolution_curve", "auc"), ("resolution_curve", "accuracy at 1")}
    rows = [(row["metric"], row["x"], row["value"]) for row in folder.rows if row["evaluation"] == "resolution_curve"]
    assert rows[:3] == [("auc", "", 0.3), ("accuracy", 0.5, 0.25), ("accuracy", 1, 0.75)]
    page = page_of(folder)
    assert (
        "resolution_curve: accuracy at 0.5" in page
        and "confusion: confusion[1, 0]" in page
        and "Confusion matrices, trained" in page
    )

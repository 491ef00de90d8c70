"""What a page and its tables make of stored scores: known numbers, put into the folders that a run leaves behind."""

import math

import numpy as np
import pytest

from vitpos import lab
from vitpos.analysis import figures as draw
from vitpos.data.base import load
from vitpos.experiment import Experiment
from vitpos.progress import output, show_table
from vitpos.report import sections, write_report
from vitpos.report.advice import advice
from vitpos.report.groups import panels
from vitpos.store import Folder, Run
from vitpos.summary import grouped, summarise

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
columns = [{ label = "right", evaluation = "accuracy", better = "more" }]
"""
TWO = TEXT.replace('data = "stripes(count=40)"', 'data = ["stripes(count=40)", "stripes(count=60)"]')  # sets of data
LOG = [{"epoch": 1, "loss": 1.0, "accuracy": 0.5, "seconds": 1.0}]


def stored(path, score, text=TEXT):
    """The folder of an experiment whose cells have the scores that ``score(cell)`` gives; None is an untrained cell."""
    experiment = Experiment.make({"name": "tiny", "asked": "tiny", "text": text, "settings": [], "seeds": None})
    with Folder.working(path, experiment) as folder:
        for cell in experiment.cells:
            found = score(cell)
            if found is not None:
                run = Run.create(folder.path / "cells" / cell.key, cell)
                run.finish(lab.build(cell, load(cell.data)), LOG)
                for evaluation, numbers in found.items():
                    run.add_scores(evaluation, numbers)
    return folder


def page_of(folder):
    return write_report([folder.path], folder.path / "page.html").read_text()


@pytest.mark.parametrize("strange", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_none_is_missing_and_breaks_nothing(tmp_path, strange):
    values = {"none": [0.5, strange, 0.7], "learned": [strange] * 3}
    folder = stored(tmp_path / "out", lambda cell: {"accuracy": {"accuracy": values[cell.encoding][cell.seed]}})
    base, row = summarise(folder, folder.experiment.tables[0])
    assert base.figures[0].values == (0.5, 0.7) and base.figures[0].text == "60.00 ± 14.14"
    assert row.figures[0].text == "–" and row.figures[0].difference is None
    with output.capture() as shown:
        show_table(folder, folder.experiment.tables[0])
    assert "60.00 ± 14.14" in shown.get() and "–" in shown.get()
    assert "60.00 ± 14.14" in page_of(folder)


@pytest.mark.parametrize(
    ("learned", "alike"),
    [({0: 0.9}, True), ({0: 0.9, 1: 0.91, 2: 0.92}, False)],
    ids=["one seed finished", "three seeds finished"],
)
def test_one_seed_beside_several_tells_nothing_apart(tmp_path, learned, alike):
    values = {"none": {0: 0.5, 1: 0.51, 2: 0.52}, "learned": learned}

    def score(cell):
        found = values[cell.encoding].get(cell.seed)
        return None if found is None else {"accuracy": {"accuracy": found}}

    folder = stored(tmp_path / "out", score)
    ((_, said),) = advice(folder.experiment.tables[0], summarise(folder, folder.experiment.tables[0]))
    assert said[0].endswith("not told apart from it by these seeds: none." if alike else "(91.00 ± 1.00 %).")
    warned = "One seed cannot tell a difference from noise (so far the case of learned): run more"
    assert said[-1].startswith(warned) is alike


@pytest.mark.parametrize(("learned", "count"), [(0.9, 1), (0.5, 2)])
def test_where_nobody_has_several_seeds_only_equals_are_alike(tmp_path, learned, count):
    values = {"none": 0.5, "learned": learned}
    text = TEXT.replace("[0, 1, 2]", "[0]")
    folder = stored(tmp_path / "out", lambda cell: {"accuracy": {"accuracy": values[cell.encoding]}}, text)
    ((_, said),) = advice(folder.experiment.tables[0], summarise(folder, folder.experiment.tables[0]))
    assert ("not told apart" in said[0]) is (count == 2)
    assert said[-1].startswith("One seed cannot tell a difference from noise: run more")


def of_two_sets(cell):
    """Close together on the first set and on the second, which is easier."""
    right = {"none": 0.3, "learned": 0.31} if cell.data == "stripes(count=40)" else {"none": 0.91, "learned": 0.9}
    return {"accuracy": {"accuracy": right[cell.encoding] + 0.001 * cell.seed}}


def test_advice_says_which_data_it_is_about(tmp_path):
    folder = stored(tmp_path / "out", of_two_sets, TWO)
    found = dict(advice(folder.experiment.tables[0], summarise(folder, folder.experiment.tables[0])))
    assert found["trained on stripes(count=40)"][0] == "right: learned (31.10 ± 0.10 %)."
    assert found["trained on stripes(count=60)"][0] == "right: none (91.10 ± 0.10 %)."
    assert page_of(folder).count("<h4>trained on stripes") == 2


def test_groups_are_told_apart_by_all_that_is_not_the_encoding(tmp_path):
    text = TWO.replace("train.epochs = 1", "train.lr = [0.1, 0.2]")
    folder = stored(tmp_path / "out", of_two_sets, text)
    groups = grouped(summarise(folder, folder.experiment.tables[0]))
    assert list(groups)[:2] == ["trained on stripes(count=40), lr 0.1", "trained on stripes(count=40), lr 0.2"]
    assert len(groups) == 4 and all(len(rows) == 2 for rows in groups.values())


def shades(figure):
    """The level of each cell of a map of colours, rows by columns."""
    return figure.axes[0].images[0].get_array().filled(np.nan)


def test_a_map_of_colours_tells_encodings_of_one_set_of_data_apart(tmp_path):
    folder = stored(tmp_path / "out", of_two_sets, TWO)
    maps = {title: figure for title, _, figure in sections.figures(folder) if title.startswith("At a glance")}
    assert list(maps) == [f"At a glance: Compared · trained on stripes(count={count})" for count in (40, 60)]
    assert [shades(figure).tolist() for figure in maps.values()] == [[[0], [1]], [[1], [0]]]


def test_a_column_that_nobody_has_yet_is_left_blank():
    values = np.array([[0.1, np.nan], [0.2, np.nan]])
    figure = draw.heat(["none", "learned"], ["here", "not yet"], values, [["10", "–"], ["20", "–"]], [1, -1])
    assert np.isnan(shades(figure)).tolist() == [[False, True], [False, True]] and draw.svg(figure)


def test_rows_share_a_figure_with_other_encodings_or_else_with_the_same_data(tmp_path):
    text = TWO.replace('encoding = ["none", "learned"]', 'encoding = "none"').replace(
        'model = "vit(patch=(2, 4), dim=8, depth=1, heads=2)"', 'model = ["attention(patch=2, dim=8)", "cnn"]'
    )
    folder = stored(tmp_path / "out", of_two_sets, text)
    found = panels(summarise(folder, folder.experiment.tables[0]))
    assert list(found) == ["trained on stripes(count=40)", "trained on stripes(count=60)"]
    assert all(list(rows) == ["attention(patch=2, dim=8) · none", "cnn · none"] for rows in found.values())

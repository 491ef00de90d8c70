"""What a page and its tables make of stored scores: known numbers, put into the folders that a run leaves behind."""

import math

import pytest

from vitpos import lab
from vitpos.data.base import load
from vitpos.experiment import Experiment
from vitpos.progress import output, show_table
from vitpos.report import write_report
from vitpos.store import Folder, Run
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
columns = [{ label = "right", evaluation = "accuracy", better = "more" }]
"""
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

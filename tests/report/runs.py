"""Folders of runs with known numbers in place of those that a short training gives."""

import torch

from vitpos.data.dataset import load
from vitpos.evaluations.result import Result
from vitpos.lab import runner
from vitpos.lab.cell_folder import CellFolder
from vitpos.lab.cell_models import build_model
from vitpos.lab.experiment import Experiment
from vitpos.lab.experiment_folder import ExperimentFolder
from vitpos.lab.results import Results
from vitpos.lab.summary import summarize
from vitpos.report import write_report

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
    experiment = Experiment.from_definition(
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


def of_two_sets(cell):
    """Close together on the first set and on the second, which is easier."""
    right = {"none": 0.3, "learned": 0.31} if cell.data == "stripes(count=40)" else {"none": 0.91, "learned": 0.9}
    return {"accuracy": {"accuracy": right[cell.encoding] + 0.001 * cell.seed}}


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

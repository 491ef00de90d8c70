"""How the stored values were made: ``python -m tests.golden.make``.

They were made before the redesign, at the commit that added them, and are never remade to make a test pass: a golden test
that fails has found a number that changed. Remake a file only where a number is meant to change, in a commit of its own
that lists the numbers and gives the reason. ``names.py`` is to be empty then, or the file would hold names of today.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from tests.golden import adapter, logits, names, stored, tiny, training_steps
from tests.golden.cases import CASES


def make_models() -> None:
    """``state_dicts.json`` and ``logits.npz``."""
    shapes = {
        case.id: {name: tuple(x.shape) for name, x in adapter.build_case(case).state_dict().items()} for case in CASES
    }
    arrays = {}
    for case in CASES:
        arrays[case.id] = logits.logits(case, shapes[case.id])
        arrays[f"{case.id} | gradients"] = logits.gradients(case, shapes[case.id])
        arrays[f"{case.id} | first weights"] = logits.first_weights(case, shapes[case.id])
    lines = (f"{json.dumps(name)}: {json.dumps(one)}" for name, one in shapes.items())
    stored.STATE_DICTS.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    np.savez_compressed(stored.LOGITS, **arrays)


def make_training_steps() -> None:
    """``training_steps.json``."""
    made: dict[str, Any] = {}
    for name, (model, encoding, _) in training_steps.TRAININGS.items():
        shapes = adapter.training_shapes(model, encoding)
        made[name] = {"shapes": shapes, "epochs": training_steps.trained(name, shapes)}
    stored.TRAINING_STEPS.write_text(json.dumps(made, indent=0) + "\n")


def make_tiny() -> None:
    """``tiny_results.csv`` and ``tiny_inspect.json``."""
    with TemporaryDirectory() as folder:
        run = tiny.run_tiny(Path(folder))
        with (run / "results.csv").open(newline="") as file:
            rows = [row for row in csv.DictReader(file) if row["metric"] not in tiny.MEASURED]
        made = {
            encoding: tiny.flat(json.loads((run / f"{number}.json").read_text()))
            for number, encoding in enumerate(tiny.INSPECTED)
        }
    _write_rows(stored.TINY_RESULTS, rows)
    stored.TINY_INSPECT.write_text(json.dumps(made, indent=0) + "\n")


def make_mnist_jigsaw() -> None:
    """``mnist_jigsaw.csv``: seed 0 of the results that the project publishes."""
    with (adapter.ROOT / "results" / "mnist-jigsaw.csv").open(newline="") as file:
        _write_rows(stored.MNIST_JIGSAW, [row for row in csv.DictReader(file) if row["seed"] == "0"])


def _write_rows(path: Path, rows: Sequence[dict[str, str]]) -> None:
    columns = ("data", "model", "encoding", "seed", "evaluation", "metric", "value")
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def main() -> None:
    """Makes all files, or those named: models, training_steps, tiny, mnist_jigsaw."""
    assert not any((*names.SPECS.values(), names.PARAMETERS, names.METRICS)), "stored values have the old names"
    torch.set_num_threads(1)
    makers = {
        "models": make_models,
        "training_steps": make_training_steps,
        "tiny": make_tiny,
        "mnist_jigsaw": make_mnist_jigsaw,
    }
    for name in sys.argv[1:] or makers:
        makers[name]()


if __name__ == "__main__":
    main()

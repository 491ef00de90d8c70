"""The only golden module that uses vitpos: edit it, and ``names.py``, when the API changes; never the tests.

All functions take the old names of specs, parameters and training options and translate them with ``names.py``.
``python -m tests.golden.adapter`` runs an experiment in a process of its own (see :func:`run_alone`).
"""

from __future__ import annotations

import csv
import itertools
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tests.golden import names, values
from tests.golden.cases import CHANNELS, CLASSES, GRID, OTHER, PATCH, Case
from vitpos.data import DATASETS
from vitpos.data.dataset import Dataset, Split, load
from vitpos.encodings import ENCODINGS
from vitpos.encodings.base import Geometry, PositionEncoding
from vitpos.encodings.protocols import FollowsTraining
from vitpos.evaluations import EVALUATIONS
from vitpos.inspection.inspect import Inspection, inspect, target_from_model
from vitpos.lab import runner
from vitpos.lab.cell_folder import CellFolder
from vitpos.lab.cell_models import load_model
from vitpos.lab.experiment import Experiment
from vitpos.lab.results import Results
from vitpos.models import MODELS
from vitpos.positions import Positions
from vitpos.report.inspection_page import json_numbers
from vitpos.training.loop import fit
from vitpos.training.recipe import Recipe

ROOT = Path(__file__).parents[2]
CATALOGS = {"data": DATASETS, "encoding": ENCODINGS, "model": MODELS, "evaluation": EVALUATIONS}
Row = tuple[str, str, str, int, str, str, str]  # data, model, encoding, seed, evaluation, metric, x

# ---------------------------------------------------------------- models


class Plugin(PositionEncoding):
    """An encoding as a user writes it: −distance / 2 on the logits."""

    def __init__(self, geometry: Geometry):
        super().__init__()

    def bias(self, q: Tensor, k: Tensor, pos: Positions, layer: int) -> Tensor:
        """(B|1, 1, N, N)."""
        return -0.5 * pos.offsets().norm(dim=-1)[:, None].to(q.dtype)


def build(model: str, encoding: str, image: tuple[int, int, int], classes: int, *, seed: int = 0) -> nn.Module:
    """A model of old specs with the first weights of a seed, in float32."""
    torch.manual_seed(seed)
    return MODELS.build(names.model_spec(model, encoding), image, classes, names.spec("encoding", encoding))


def build_case(case: Case) -> nn.Module:
    """The model of a case with its first weights."""
    return build(case.model, case.encoding, (CHANNELS, GRID[0] * PATCH[0], GRID[1] * PATCH[1]), CLASSES)


def state_from(old: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A state dict of today from one with old names. A tensor that was split or reshaped is to be converted here.

    The scales of cosine attention, one row per layer, were a parameter of the encoding `cpb` and are now one of each
    attention.
    """
    state = {}
    for name, tensor in old.items():
        if found := re.fullmatch(r"(.*?)encoding\.(?:parts\.\d+\.)?scale", name):
            for layer, scale in enumerate(tensor):
                state[f"{found[1]}blocks.{layer}.attention.logit_scale"] = scale
        elif name.endswith("encoding.rows") and tensor.shape == (2, tensor.shape[-1]):  # two prefix tokens
            state[name.replace("rows", "prefix_table")] = tensor
        else:
            state[names.parameter(name)] = tensor
    return state


def load_state(model: nn.Module, old: Mapping[str, Tensor]) -> None:
    """Puts a state dict with old names into a model, all of it."""
    model.load_state_dict(state_from(old))


def along(old_name: str, shape: tuple[int, ...], tensors: Mapping[str, Tensor]) -> float:
    """The product of one tensor, among ``tensors`` by today's names, with numbers drawn by its old name.

    One number that changes with every value of the tensor, and stays as it is when :func:`state_from` splits the tensor.
    """
    parts = state_from({old_name: values.draw("along " + old_name, *shape)})
    return sum(float((tensors[name].detach().double() * part).sum()) for name, part in parts.items())


def images_on(grid: tuple[int, int], count: int) -> Tensor:
    """Random images of a grid of patches."""
    return values.draw("images", count, CHANNELS, grid[0] * PATCH[0], grid[1] * PATCH[1])


def run(model: nn.Module, situation: str, *, batch: int) -> tuple[Tensor, Tensor]:
    """Logits and penalty of a model, in the mode it is in, in one of the situations of ``cases.py``."""
    grid = OTHER if situation in ("other grid", "beyond", "resized") else GRID
    images, count = images_on(grid, batch), grid[0] * grid[1]
    positions = {
        "shuffled": lambda: Positions.from_grid(grid).permute(values.order(batch, count)),
        "hidden": lambda: Positions.from_grid(grid).hide(values.hidden(1, count)),
        "shuffled and hidden": lambda: (
            Positions.from_grid(grid).permute(values.order(batch, count)).hide(values.hidden(batch, count))
        ),
        "beyond": lambda: Positions.from_grid(grid),
    }
    if situation == "resized":
        model = model.resized(grid)
    logits, penalty = model.forward_with_penalty(images, positions[situation]() if situation in positions else None)
    return logits, torch.as_tensor(penalty, dtype=logits.dtype)


def set_progress(model: nn.Module, progress: float) -> None:
    """Tells the encoding how far training is, 0 to 1."""
    for module in model.modules():
        if isinstance(module, FollowsTraining):
            module.set_progress(progress)


# ---------------------------------------------------------------- training


def training_shapes(model: str, encoding: str) -> dict[str, tuple[int, ...]]:
    """The state dict of a model that :func:`train` trains: shapes by the names of today."""
    state = build(model, encoding, (3, 8, 12), CLASSES).state_dict()
    return {name: tuple(x.shape) for name, x in state.items()}


def random_data(count: int, size: tuple[int, int], classes: int) -> Dataset:
    """Color images of random bytes, with labels in turn."""
    draws = values.draw("bytes", count, 3, *size)
    split = Split(((draws / 12**0.5 + 0.5) * 255).byte(), torch.arange(count) % classes)
    return Dataset(split, split, tuple(map(str, range(classes))), (0.4, 0.5, 0.6), (0.2, 0.25, 0.3))


def train(
    model: str,
    encoding: str,
    options: Mapping[str, Any],
    shapes: Mapping[str, tuple[int, ...]],
    *,
    stop: int | None = None,
    resume: tuple[int, dict[str, Tensor]] | None = None,
) -> Iterator[tuple[int, dict[str, Tensor], dict[str, float], nn.Module]]:
    """Trains a float64 model with old training options: (epoch, copy of what resuming needs, log, model) per state.

    The first weights are drawn by the old names of the tensors of ``shapes``, not by the model, whose draws are float32.
    ``stop`` ends it after so many epochs; ``resume`` continues from the first two values of a state.
    """
    catalogs = {"augment": "augment", "defence": "defence"}
    translated = {
        names.experiment_key(f"train.{key}").removeprefix("train."): names.spec(catalogs[key], value)
        if key in catalogs
        else value
        for key, value in options.items()
    }
    data = random_data(36, (8, 12), CLASSES)
    made = build(model, encoding, data.shape, CLASSES).double()
    load_state(made, values.weights(shapes))
    for module in made.modules():  # data sets give float32
        if isinstance(module, nn.Linear | nn.Conv2d):
            module.register_forward_pre_hook(lambda module, inputs: inputs[0].to(module.weight.dtype))
    for state in fit(made, data, Recipe(**translated), resume=resume):
        yield state.epoch, {name: x.clone() for name, x in state.state.items()}, state.metrics, made
        if state.epoch == stop:
            return


# ---------------------------------------------------------------- experiments


def canonical(kind: str, spec: str) -> str:
    """A spec of today as results.csv has it."""
    return CATALOGS[kind].canonical(spec)


def row_of_today(data: str, model: str, encoding: str, seed: int, evaluation: str, metric: str) -> Row:
    """The key of today of a row of results with old names."""
    return (
        canonical("data", names.spec("data", data)),
        canonical("model", names.model_spec(model, encoding)),
        canonical("encoding", names.spec("encoding", encoding)),
        seed,
        canonical("evaluation", names.spec("evaluation", evaluation)),
        *names.metric(evaluation, metric),
    )


def read_results(path: Path) -> dict[Row, float]:
    """The numbers of a results.csv of today by their keys, and the confusion matrices of its run, which lie beside it."""
    found = {}
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            specs = row["data"], row["model"], row["encoding"], int(row["seed"]), row["evaluation"]
            found[*specs, row["metric"], row.get("x", "")] = float(row["value"])
    for cell, run in Results.open(path.parent).trained:
        classes = load(cell.data).classes
        for matrix in run.load_result("confusion").arrays.values():
            for true, predicted in itertools.product(range(len(classes)), repeat=2):
                words = f"{classes[true]} as {classes[predicted]}"  # the metric that such an entry was
                key = cell.data, cell.model, cell.encoding, cell.seed, "confusion", words, ""
                found[key] = float(matrix[true, predicted])
    return found


def experiment_text(path: Path) -> str:
    """The TOML of today of an experiment with old names and without tables."""
    document = tomllib.loads(path.read_text())
    cells = document.pop("cells")
    lines = [*_lines(document), *(line for cell in cells for line in ("[[cells]]", *_lines(document | cell)))]
    return "\n".join(lines) + "\n"


def _lines(document: Mapping[str, Any]) -> Iterator[str]:
    encodings = document.get("encoding", "none")
    for key, value in document.items():
        flat = {f"{key}.{name}": x for name, x in value.items()} if isinstance(value, dict) else {key: value}
        for name, x in flat.items():
            if name == "model":
                x = names.model_spec(x, encodings if isinstance(encodings, str) else encodings[0])
            kind = {"evaluate": "evaluation", "train.augment": "augment", "train.defence": "defence"}.get(name, name)
            if kind in names.SPECS and name != "model":
                x = [names.spec(kind, one) for one in x] if isinstance(x, list) else names.spec(kind, x)
            yield f"{names.experiment_key(name)} = {json.dumps(x)}"


def run_experiment(
    name: str, out: Path, *, cells: Sequence[tuple[str, str, str]] = (), inspected: Sequence[str] = ()
) -> None:
    """Runs seed 0 of an experiment of today: results.csv, and NUMBER.json with what is inspected.

    ``cells``: only these (data, model, encoding), by old specs. ``inspected``: encodings, by old specs.
    """
    torch.set_num_threads(1)
    experiment = Experiment.load(name, seeds=[0])
    if cells:
        wanted = [row_of_today(*cell, 0, "accuracy", "accuracy")[:3] for cell in cells]
        kept = tuple(cell for cell in experiment.cells if (cell.data, cell.model, cell.encoding) in wanted)
        assert len(kept) == len(wanted), f"{name} has only {len(kept)} of the cells {wanted}"
        experiment = replace(experiment, cells=kept)
    results = runner.run(experiment, out, workers=1)
    for number, encoding in enumerate(inspected):
        new = canonical("encoding", names.spec("encoding", encoding))
        (found,) = [folder for cell, folder in results.trained if cell.encoding == new]
        (out / f"{number}.json").write_text(json.dumps(inspect_run(found)))


def inspect_run(folder: CellFolder) -> Any:
    """What inspect.json has of a trained cell."""
    model, data = load_model(folder), load(folder.cell.data)
    target = target_from_model("run", model, data, encoding=folder.cell.encoding)
    return json_numbers(Inspection(target, inspect(target, images=40)).numbers)


def run_alone(
    name: str,
    out: Path,
    *,
    cells: Sequence[tuple[str, str, str]] = (),
    inspected: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> None:
    """:func:`run_experiment` in a process of its own, whose environment decides on the kernels that torch chooses."""
    arguments = json.dumps([name, str(out), [list(cell) for cell in cells], list(inspected)])
    command = [sys.executable, "-m", "tests.golden.adapter", arguments]
    variables = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", **(environment or {})}
    done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


if __name__ == "__main__":
    _name, _out, _cells, _inspected = json.loads(sys.argv[1])
    run_experiment(_name, Path(_out), cells=_cells, inspected=_inspected)

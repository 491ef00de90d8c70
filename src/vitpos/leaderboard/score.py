"""Trains and measures one encoding under a protocol, and makes its leaderboard entry."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from vitpos.data.dataset import Dataset, load
from vitpos.encodings import ENCODINGS
from vitpos.encodings.base import PositionEncoding
from vitpos.errors import InputError
from vitpos.inspection.logits import logit_variance
from vitpos.inspection.table_stats import position_vectors
from vitpos.lab.cell_models import load_model
from vitpos.lab.events import Observer
from vitpos.lab.experiment import Experiment
from vitpos.lab.experiment_folder import ExperimentFolder
from vitpos.lab.machine import machine, package_commit
from vitpos.lab.results import Results
from vitpos.lab.runner import run
from vitpos.leaderboard.entry import ENTRY_FOLDER, Entry
from vitpos.leaderboard.entry_checks import family_of_spec
from vitpos.leaderboard.protocol import Protocol
from vitpos.leaderboard.training_check import training_losses
from vitpos.models.base import PatchClassifier
from vitpos.registry.plugins import identity, load_plugin
from vitpos.testing import EncodingError, check_encoding


def score(
    encoding: str | Callable[..., PositionEncoding],
    out: Path | str,
    *,
    protocol: str | Protocol = "vitpos-1",
    seeds: Sequence[int] | None = None,
    quick: bool = False,
    workers: int | None = None,
    data: str | None = None,
    plugins: Sequence[str] = (),
    observer: Observer | None = None,
) -> Entry:
    """Trains and measures an encoding under a leaderboard protocol, writes its entry and returns it.

    A protocol fixes model, data, training and measured columns. An unfinished run in ``out`` is continued.

    Args:
        encoding: A spec such as ``rope(base=10)``, a class or a factory.
        out: Folder for the run; the entry is written to its subfolder ``entry``.
        protocol: A protocol or its name.
        seeds: Seeds; those of the protocol by default.
        quick: Makes a shortened run, to try it; the entry is marked and is not ranked.
        workers: Number of processes that train seeds in parallel; by default one per core, or a single one with a GPU.
        data: Spec of the data set, for protocols that need one (``vitpos-1-gpu``).
        plugins: Python files or modules that register encodings.
        observer: Receives the events of the run; by default progress is shown on standard error.
    """
    chosen = Protocol.load(protocol) if isinstance(protocol, str) else protocol
    experiment = plan(encoding, chosen, seeds=seeds, quick=quick, data=data, plugins=plugins)
    _require_same_training(Path(out), experiment)
    _require_contract(experiment.cells[0].encoding)
    results = run(experiment, out, workers=workers, observer=observer)
    losses = training_losses(chosen, data, experiment.cells[0])
    entry = make_entry(results, chosen, losses, quick=quick)
    entry.save(Path(out) / ENTRY_FOLDER)
    return entry


def plan(encoding: Any, protocol: Protocol, *, plugins: Sequence[str] = (), **options: Any) -> Experiment:
    """Returns the experiment that trains and measures an encoding under a leaderboard protocol, without running it.

    Args:
        encoding: A spec such as ``rope(base=10)``, a class or a factory.
        plugins: Python files or modules that register encodings.
        options: ``seeds``, ``quick`` (whether training is shortened) and ``data`` (spec of the data set).
    """
    for plugin in plugins:
        load_plugin(plugin)
    return protocol.experiment_for(encoding, family_of_spec(encoding), plugins=plugins, **options)


def _require_same_training(out: Path, experiment: Experiment) -> None:
    """Raises an InputError if a folder has the run of another encoding, or of one with less or more training."""
    if not (out / "experiment.json").exists():
        return
    stored = ExperimentFolder.open(out).experiment.cells[0]
    new = experiment.cells[0]
    if (stored.encoding, stored.data, stored.train) != (new.encoding, new.data, new.train):
        differs = f"of {stored.encoding}" if stored.encoding != new.encoding else "with another length of training"
        raise InputError(f"{out} has a run {differs}; use another folder")


def _require_contract(spec: str) -> None:
    """Raises an InputError if an encoding from outside the package fails a check of the contract, such as leaking images.

    Encodings of the package are checked by its tests.
    """
    for term in ENCODINGS.parse(spec):
        if term.name in ENCODINGS.builtin:
            continue
        try:
            check_encoding(ENCODINGS.load(term.name), skip=("dtypes", "devices"), **term.options)
        except EncodingError as error:
            first, count = str(error).strip().splitlines()[1:2], len(str(error).strip().splitlines()) - 1
            problem = f": {first[0].strip(' -')}" if first else ""
            raise InputError(
                f"encoding {term.name!r} fails {count} checks of the contract of encodings{problem}; "
                f"python -m vitpos.testing {term.name} shows them all"
            ) from None


def make_entry(results: Results, protocol: Protocol, losses: Mapping[str, float], *, quick: bool = False) -> Entry:
    """Returns the leaderboard entry of an encoding, made from the results of its run under a protocol.

    Args:
        losses: Encoding → loss of a short training, as returned by `training_losses`.
        quick: Whether the run was shortened.
    """
    spec = results.experiment.cells[0].encoding
    public = _without_folders(spec)
    described = ENCODINGS.describe_all(spec)
    numbers: dict[str, dict[int, float]] = {}
    reasons: dict[str, str] = {}
    for key, column in protocol.columns.items():
        for cell, _ in results.trained:
            result = results.of(cell).get(column.evaluation)
            if result is None or (column.data and column.data != cell.data):
                continue
            if column.metric in result.numbers:
                numbers.setdefault(key, {})[cell.seed] = result.numbers[column.metric]
            elif result.reason:
                reasons[key] = result.reason
    return Entry(
        protocol=protocol.name,
        protocol_sha256=protocol.sha256,
        encoding=public,
        family=family_of_spec(spec),
        summary=" + ".join(entry.summary for entry in described),
        paper="; ".join(entry.attributes.get("paper", "") for entry in described if entry.attributes.get("paper")),
        code=_code(spec),
        numbers=numbers,
        training_losses={public if name == spec else name: loss for name, loss in losses.items()},
        reasons=reasons,
        machine=machine(),
        commit=package_commit(),
        maps=_maps(results),
        quick=quick,
        data=_size_of(load(results.experiment.cells[0].data)) if protocol.needs_data else "",
    )


def _size_of(data: Dataset) -> str:
    """Returns the numbers of images and classes of a data set as text."""
    return f"{len(data.train):,} training images, {len(data.test):,} test images, {len(data.classes):,} classes"


def _maps(results: Results) -> dict[str, list[list[list[float]]]]:
    """Returns maps of the patch grid from the first trained model: title → n maps (n, rows, columns) as nested lists.

    One title has the mean attention logits of the central patch with every patch, one map per block. If the encoding adds
    vectors to tokens, a second title has one map of the cosine similarity of the central vector with all vectors. The
    dictionary is empty for models without patches.
    """
    cell, folder = results.trained[0]
    model, data = load_model(folder), load(cell.data)
    if not isinstance(model, PatchClassifier):
        return {}
    rows, columns = grid = model.geometry.grid
    center = (rows // 2) * columns + columns // 2
    logits = logit_variance(model, data, shuffled=True, limit=256).mean[:, :, center]  # (depth, H, N), −∞ where masked
    logits = logits.masked_fill(logits.isinf(), torch.nan).nanmean(1)  # (depth, N)
    found = {f"mean logit of patch ({rows // 2}, {columns // 2}) with each patch, by block": logits}
    vectors = position_vectors(model)
    if vectors.any():
        name = f"cosine similarity of the added vector of patch ({rows // 2}, {columns // 2}) with the others"
        found[name] = F.cosine_similarity(vectors, vectors[center], dim=1)[None]
    return {name: _rounded(stack.unflatten(1, grid)) for name, stack in found.items()}


def _rounded(stack: Tensor) -> list[list[list[float]]]:
    """Converts n maps (n, rows, columns) to nested lists with four decimals.

    NaN, which stands for pairs of patches that all heads mask, becomes the smallest other value.
    """
    filled = stack.nan_to_num(float(stack[~stack.isnan()].min()))
    return [[[round(value, 4) for value in row] for row in grid] for grid in filled.tolist()]


def _without_folders(spec: str) -> str:
    """Returns a spec with the names of Python files in place of their paths: ``/home/me/mine.py:A`` → ``mine.py:A``."""
    names = {term.name: term.name.rsplit("/", 1)[-1].rsplit("\\", 1)[-1] for term in ENCODINGS.parse(spec)}
    for name, short in names.items():
        spec = spec.replace(name, short)
    return spec


def _code(spec: str) -> dict[str, str]:
    """Returns name → sha256 of the source file, for each encoding in a spec such as ``learned + rope``."""
    return {
        _without_folders(term.name): hashlib.sha256(
            Path(identity(ENCODINGS.load(term.name))[0]).read_bytes()
        ).hexdigest()
        for term in ENCODINGS.parse(spec)
    }

"""Runs the experiments of claims with the seeds of the ledger, and records the rules under which each run is started."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from vitpos.claims.ledger import FIRST_SEED, Claim
from vitpos.claims.stored_runs import CLAIMS_FILE
from vitpos.errors import InputError
from vitpos.files import read_json, write_json
from vitpos.lab.events import Observer
from vitpos.lab.experiment import Experiment
from vitpos.lab.machine import machine, package_commit
from vitpos.lab.runner import run


def run_claims(
    claims: Sequence[Claim],
    out: Path,
    *,
    seeds: Sequence[int] | None = None,
    workers: int | None = None,
    observer: Observer,
) -> list[Path]:
    """Runs or continues the experiments of claims and returns their folders, ``out/EXPERIMENT``.

    Args:
        claims: The claims. Those that share an experiment share its run, which has the seeds that most of them need.
        out: Folder of the runs.
        seeds: Only these seeds, for a run in parts; by default those of the claims.
        workers: Number of processes that train in parallel; by default one per core, or a single one with a GPU.
        observer: Receives the events of the runs, such as a progress bar.
    """
    folders = []
    for experiment in dict.fromkeys(claim.experiment for claim in claims if claim.experiment):
        judged = [claim for claim in claims if claim.experiment == experiment]
        needed = max((claim.seed_list for claim in judged), key=len)
        if unknown := [seed for seed in seeds or () if seed not in needed]:
            raise InputError(f"--seeds {unknown[0]}: the claims of {experiment} are judged by seeds {needed}")
        wanted = Experiment.load(experiment, seeds=list(seeds or needed))
        folder = out / wanted.name
        record_rules(folder, wanted, judged)
        with _timed(folder / CLAIMS_FILE):
            run(wanted, folder, workers=workers, observer=observer).write_csv()
        folders.append(folder)
    return folders


def record_rules(folder: Path, experiment: Experiment, claims: Sequence[Claim]) -> None:
    """Writes ``claims.json`` before a run starts: the hash of each claim's rule, the time, the commit and the machine.

    In a folder that has one, rules are only added. Raises an InputError if the rule of a claim has changed since.

    Args:
        folder: Folder of the run, which is created.
        experiment: The experiment, the same for all claims.
        claims: Claims that the run is to judge.
    """
    path = folder / CLAIMS_FILE
    if path.exists():
        record = read_json(path)
    elif any((folder / "cells").glob("*")):
        raise InputError(f"{folder} has models, and no {CLAIMS_FILE} to say under which rules; use another folder")
    else:
        record = {
            "experiment": claims[0].experiment,
            "rules": {},
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
            "commit": package_commit(),
            "machine": machine(),
            "experiment_sha256": _experiment_sha256(experiment),
        }
    for claim in claims:
        if record["rules"].setdefault(claim.id, claim.sha256) != claim.sha256:
            raise InputError(f"the rule of {claim.id} has changed since {folder} was started; use another folder")
    folder.mkdir(parents=True, exist_ok=True)
    write_json(path, record)


def _experiment_sha256(experiment: Experiment) -> str:
    """Returns a hash of everything that an experiment trains and evaluates, whatever its seeds."""
    cells = {(replace(cell, seed=FIRST_SEED).folder_name, cell.evaluations) for cell in experiment.cells}
    return hashlib.sha256(json.dumps(sorted(cells)).encode()).hexdigest()


@contextmanager
def _timed(record: Path) -> Iterator[None]:
    """Adds the processor time of a ``with`` block, child processes included, to ``core_hours`` of a JSON file."""
    before = os.times()
    try:
        yield
    finally:
        spent = sum(after - at for after, at in zip(os.times()[:4], before[:4], strict=True))
        stored = read_json(record)
        write_json(record, stored | {"core_hours": round(stored.get("core_hours", 0.0) + spent / 3600, 5)})

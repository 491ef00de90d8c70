"""Stored runs of claims: a ``results.csv`` and, beside it, the rules under which the run was started."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from vitpos.claims.outcomes import Series
from vitpos.errors import InputError
from vitpos.evaluations import EVALUATIONS
from vitpos.files import explain_damage, read_csv, read_json, write_csv, write_json
from vitpos.lab.settings import SPECS
from vitpos.registry import Registry

CLAIMS_FILE = "claims.json"
COLUMNS: dict[str, Registry] = {**SPECS, "evaluation": EVALUATIONS}  # columns of results.csv that hold specs


class NotMeasured(Exception):
    """Raised for numbers that are not stored (yet); the message says which."""


@dataclass(frozen=True)
class StoredRun:
    """A run of an experiment for claims: its rows of ``results.csv`` and what was recorded when it was started.

    Args:
        experiment: Name of the experiment.
        rows: One dictionary per number, with the columns of ``results.csv``.
        rules: Claim id → hash of its rule when the run was started.
        started: Time at which the run was started, as ``2026-11-18T14:00:00+00:00``.
        commit: Commit of the package; empty if unknown.
        machine: Processor, cores, system and versions.
        core_hours: Processor time of the run in hours, over all its processes; parts that were killed are not counted.
        added: Claim id → time at which its rule was added to a run that had been started before.
    """

    experiment: str
    rows: Sequence[Mapping[str, str]] = field(repr=False)
    rules: Mapping[str, str]
    started: str
    commit: str = ""
    machine: Mapping[str, str] = field(default_factory=dict)
    core_hours: float = 0.0
    added: Mapping[str, str] = field(default_factory=dict)

    @property
    def seeds(self) -> list[int]:
        """The seeds for which the run has numbers, in ascending order."""
        return sorted({int(row["seed"]) for row in self.rows})

    @classmethod
    def load(cls, source: Path) -> StoredRun:
        """Reads a run from its folder (``results.csv``, ``claims.json``), or from ``NAME.csv`` and ``NAME.json``."""
        table = source / "results.csv" if source.is_dir() else source
        record = source / CLAIMS_FILE if source.is_dir() else source.with_suffix(".json")
        if not record.exists() or not table.exists():
            raise InputError(f"{source} is no run of claims; make one with 'vitpos claims --run --out DIR'")
        with explain_damage(record, "restore it, or save the run again"):
            return cls(rows=read_csv(table), **read_json(record))

    def save(self, folder: Path) -> Path:
        """Writes ``EXPERIMENT.csv`` and ``EXPERIMENT.json`` into a folder, and returns the path of the CSV file."""
        path = write_csv(
            folder / f"{self.experiment}.csv", list(self.rows[0]), [list(row.values()) for row in self.rows]
        )
        record = {key: value for key, value in asdict(self).items() if key != "rows"}
        write_json(path.with_suffix(".json"), record)
        return path

    def series(self, terms: Mapping[str, Any] | Iterable[Mapping[str, Any]], seeds: Sequence[int]) -> Series:
        """Returns seed → value of a selected number, or of a weighted sum of several.

        Args:
            terms: Columns of ``results.csv`` and the values that select one number per seed, such as ``{"encoding":
                "learned", "evaluation": "accuracy"}``; ``times`` is its weight in a sum. Columns that are not given, other
                than ``x`` (empty) and ``metric`` (accuracy), may have any value.
            seeds: Seeds that must all be there.
        """
        single = [terms] if isinstance(terms, Mapping) else list(terms)
        found = [(float(term.get("times", 1.0)), self._select(term, seeds)) for term in single]
        return {seed: sum(times * values[seed] for times, values in found) for seed in seeds}

    def _select(self, term: Mapping[str, Any], seeds: Sequence[int]) -> dict[int, float]:
        wanted = {"metric": "accuracy", "x": ""} | {
            key: COLUMNS[key].canonical(value) if key in COLUMNS else str(value)
            for key, value in term.items()
            if key != "times"
        }
        rows = [row for row in self.rows if all(row.get(key) == value for key, value in wanted.items())]
        values: dict[int, float] = {}
        for row in rows:
            if (seed := int(row["seed"])) in values:
                given = json.dumps(wanted, ensure_ascii=False)
                raise InputError(f"{self.experiment}: several numbers of seed {seed} have {given}; give more columns")
            values[seed] = float(row["value"])
        if missing := [seed for seed in seeds if seed not in values]:
            named = ", ".join(f"{key} {value}" for key, value in wanted.items() if value)
            raise NotMeasured(f"{len(seeds) - len(missing)} of {len(seeds)} seeds have {named}")
        return values


def load_runs(sources: Iterable[Path]) -> dict[str, StoredRun]:
    """Returns experiment → its stored run, from folders of runs, CSV files, or folders that contain either."""
    found = []
    for source in sources:
        if source.is_dir() and not (source / CLAIMS_FILE).exists():
            inside = sorted([*source.glob("*.csv"), *(path.parent for path in source.glob(f"*/{CLAIMS_FILE}"))])
            found += [StoredRun.load(path) for path in inside]
        else:
            found.append(StoredRun.load(source))
    return {run.experiment: run for run in found}

"""Stored runs of claims: a ``results.csv`` and, beside it, the rules under which the run was started."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from vitpos.claims.outcomes import Series
from vitpos.errors import InputError
from vitpos.evaluations import EVALUATIONS
from vitpos.files import explain_damage, read_csv, require_folder, write_csv, write_json
from vitpos.lab.settings import SPECS
from vitpos.registry import Registry
from vitpos.regular_files import read_regular

CLAIMS_FILE = "claims.json"
COLUMNS: dict[str, Registry] = {**SPECS, "evaluation": EVALUATIONS}  # columns of results.csv that hold specs


DIGEST = "csv_sha256"  # in the JSON file of a stored run: hash of its CSV file
RESTORE = "restore it, or save the run again"


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
        commit: Commit of the package; empty if unknown. Several, separated by commas, if the seeds were run in parts.
        machine: Processor, cores, system and versions.
        core_hours: Processor time of the run in hours, over all its processes; parts that were killed are not counted.
        experiment_sha256: Hash of what is trained and evaluated, whatever the seeds; empty if unknown.
    """

    experiment: str
    rows: Sequence[Mapping[str, str]] = field(repr=False)
    rules: Mapping[str, str]
    started: str
    commit: str = ""
    machine: Mapping[str, str] = field(default_factory=dict)
    core_hours: float = 0.0
    experiment_sha256: str = ""

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
        with explain_damage(record, RESTORE):
            content = json.loads(read_regular(record))
            digest = content.pop(DIGEST, None)
            run = cls(rows=read_csv(table), **content)
            run._require_types()
        with explain_damage(table, RESTORE):
            if not source.is_dir() and digest != _digest(table):
                raise ValueError(f"it is not the file that {record.name} was written for")
            run._require_rows()
        return run

    def _require_types(self) -> None:
        """Raises a TypeError or ValueError if a field other than the rows has another type than it should have."""
        texts = [self.experiment, self.started, self.commit, self.experiment_sha256]
        for pairs in (self.rules, self.machine):
            texts += [*pairs.keys(), *pairs.values()]
        if wrong := [text for text in texts if not isinstance(text, str)]:
            raise TypeError(f"{wrong[0]!r} is not a string")
        if datetime.fromisoformat(self.started).tzinfo is None:
            raise ValueError(f"the time {self.started} has no time zone")
        if not (isinstance(self.core_hours, int | float) and 0 <= self.core_hours < math.inf):
            raise ValueError(f"{self.core_hours!r} is not a number of core-hours")

    def _require_rows(self) -> None:
        """Raises a ValueError or KeyError if a row is not a number of this experiment."""
        for row in self.rows:
            if row["experiment"] != Path(self.experiment).stem:
                raise ValueError(f"it has numbers of {row['experiment']}")
            if int(row["seed"]) < 0 or not math.isfinite(float(row["value"])):
                raise ValueError(f"{row['value']} is not a number of a seed")

    def save(self, folder: Path) -> Path:
        """Writes ``EXPERIMENT.csv`` and ``EXPERIMENT.json`` into a folder, and returns the path of the CSV file.

        Numbers that are already stored there are kept, unless this run has them too.
        """
        if not self.rows:
            raise InputError(
                f"the run of {self.experiment} has no numbers yet; continue it with the command of the run"
            )
        require_folder(folder)
        path = folder / f"{Path(self.experiment).stem}.csv"
        run = StoredRun.load(path).joined(self) if path.exists() else self
        rows = [[float(text) if key == "value" else text for key, text in row.items()] for row in run.rows]
        write_csv(path, list(run.rows[0]), rows)
        record = {key: value for key, value in asdict(run).items() if key != "rows"}
        write_json(path.with_suffix(".json"), record | {DIGEST: _digest(path)})
        return path

    def joined(self, other: StoredRun) -> StoredRun:
        """Returns this run together with another one of the same experiment, such as one of other seeds.

        Of numbers that both have, those of ``other`` are taken. A rule counts unless the two were started under different
        versions of it.
        """
        replaced = {_key(row) for row in other.rows}
        kept = [row for row in self.rows if _key(row) not in replaced]
        if not kept:
            return other
        if self.experiment_sha256 != other.experiment_sha256 or list(kept[0]) != list(other.rows[0]):
            versions = " and ".join(f"{run.commit[:7] or 'an unknown commit'}" for run in (self, other))
            raise InputError(
                f"{self.experiment} was changed between two of its runs, with {versions}; run all seeds with one version"
            )
        both = {**self.rules, **other.rules}
        rules = {name: rule for name, rule in both.items() if self.rules.get(name, rule) == rule}
        return StoredRun(
            self.experiment,
            [*kept, *other.rows],
            rules,
            min(self.started, other.started, key=datetime.fromisoformat),
            commit=_listed(self.commit, other.commit),
            machine={
                key: _listed(self.machine.get(key, ""), other.machine.get(key, ""))
                for key in {**self.machine, **other.machine}
            },
            core_hours=round(sum(run.core_hours for run in (self, other)), 5),
            experiment_sha256=self.experiment_sha256,
        )

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
            found = f"{len(seeds) - len(missing)} of {len(seeds)} seeds"
            raise NotMeasured(f"the run of {self.experiment} is not finished: {found} have {named}")
        return values


def load_runs(sources: Iterable[Path]) -> dict[str, StoredRun]:
    """Returns experiment → its stored run, from folders of runs, CSV files, or folders that contain either.

    Runs of one experiment are joined; of a number that several have, the last is taken.
    """
    found = []
    for source in sources:
        if source.is_dir() and not (source / CLAIMS_FILE).exists():
            inside = sorted([*source.glob("*.csv"), *(path.parent for path in source.glob(f"*/{CLAIMS_FILE}"))])
            found += [StoredRun.load(path) for path in inside]
        else:
            found.append(StoredRun.load(source))
    runs: dict[str, StoredRun] = {}
    for run in found:
        runs[run.experiment] = runs[run.experiment].joined(run) if run.experiment in runs else run
    return runs


def _listed(*texts: str) -> str:
    """Returns comma-separated lists as one list, each item once: ``a``, ``a, b`` → ``a, b``."""
    return ", ".join(dict.fromkeys(item for text in texts for item in text.split(", ") if item))


def _digest(path: Path) -> str:
    return hashlib.sha256(read_regular(path)).hexdigest()


def _key(row: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Returns what identifies a number in ``results.csv``: all columns but the value."""
    return tuple((column, text) for column, text in row.items() if column != "value")

"""Reads the claims of the source documents from the TOML files of this package. This module does not import torch."""

from __future__ import annotations

import hashlib
import inspect
import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from vitpos.claims.rules import RULES
from vitpos.errors import InputError
from vitpos.registry import suggest

FOLDER = Path(__file__).parent
FIRST_SEED = 100  # numbers with lower seeds were seen before the rules were fixed, and judge nothing


@dataclass(frozen=True)
class Claim:
    """A claim of a source document: its statement, the run that measures it and the rule that judges it.

    Args:
        id: Short name, such as ``M5``.
        document: Name of the source document.
        statement: What the document claims, in our words.
        published: The document's own numbers; empty if it gives none.
        experiment: Name of the experiment that measures it; empty if nothing is trained.
        seeds: Number of seeds; they are 100, 101, and so on.
        core_hours: Time of its experiment on one core, in hours, for all seeds.
        unit: Unit of the numbers; ``points`` means percentage points of numbers from 0 to 1.
        select: Columns of ``results.csv`` and their values that all selected numbers share.
        tests: One or more tests: each names a rule, its series and its margins. A test with ``control = true`` shows that
            the others can be judged, such as a model that solves the task.
        joint: Whether all tests have to hold; by default they are alternatives, such as readings of the claim.
        proof: Name of a function in `vitpos.claims.proofs` that decides the claim by calculation.
        reason: Why the claim cannot be decided here; empty if it can.
        command: The command that would decide it elsewhere; empty if none would.
        remark: What a reader should know beside the verdict.
        own_check: Whether it is a check of ours that the document does not claim.
    """

    id: str
    document: str
    statement: str
    published: str = ""
    experiment: str = ""
    seeds: int = 3
    core_hours: float = 0.0
    unit: str = "points"
    select: Mapping[str, Any] = field(default_factory=dict)
    tests: tuple[Mapping[str, Any], ...] = ()
    joint: bool = False
    proof: str = ""
    reason: str = ""
    command: str = ""
    remark: str = ""
    own_check: bool = False

    @property
    def seed_list(self) -> list[int]:
        """The seeds of its run: 100, 101, and so on."""
        return list(range(FIRST_SEED, FIRST_SEED + self.seeds))

    @property
    def labels(self) -> list[str]:
        """The labels of its tests, without those of claims that have a single test."""
        return [test["label"] for test in self.tests if "label" in test]

    @property
    def controls(self) -> list[str]:
        """The labels of its tests that are controls."""
        return [test["label"] for test in self.tests if test.get("control")]

    @cached_property
    def sha256(self) -> str:
        """Hash of the rule: names of experiment and proof, number of seeds, unit, selections, tests, and whether joint.

        What an experiment trains has a hash of its own, in the record of a run.
        """
        parts = (self.experiment, self.seeds, self.unit, self.select, self.tests, self.proof, *["joint"] * self.joint)
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class Document:
    """A source document and its claims, in the order of the document.

    Args:
        name: Name of its TOML file.
        title: Short title.
        source: Author, title and date, or what is known of them.
        claims: Its claims.
    """

    name: str
    title: str
    source: str
    claims: tuple[Claim, ...]


@cache
def documents() -> tuple[Document, ...]:
    """Returns the source documents of the ledger with their claims."""
    return tuple(_read(FOLDER / f"{name}.toml") for name in ("mnist-jigsaw", "learned-positions", "sape2", "mjp"))


def find_claims(ids: Iterable[str] = (), document: str | None = None) -> list[Claim]:
    """Returns the claims with these ids, in the order of the ledger; all of them, or all of one document, by default."""
    names = [one.name for one in documents()]
    if document is not None and document not in names:
        raise InputError(f"no document {document!r}; {suggest(document, names)}")
    claims = [claim for one in documents() if document in (None, one.name) for claim in one.claims]
    wanted, known = list(ids), [claim.id for claim in claims]
    for name in wanted:
        if name not in known:
            where = f" in document {document!r}" if document else ""
            raise InputError(f"no claim {name!r}{where}; {suggest(name, known)}; --id is repeatable")
    return [claim for claim in claims if not wanted or claim.id in wanted]


@cache
def fixed_rules() -> dict[str, dict[str, str]]:
    """Returns claim id → ``{"sha256": hash of the rule, "fixed": time at which it was fixed}``."""
    return json.loads((FOLDER / "fixed.json").read_text())


def _read(path: Path) -> Document:
    content = tomllib.loads(path.read_text())
    title, source = content.pop("title"), content.pop("source")
    return Document(path.stem, title, source, tuple(_claim(name, path.stem, entry) for name, entry in content.items()))


def _claim(name: str, document: str, entry: dict[str, Any]) -> Claim:
    """Returns a claim from its TOML table; raises an InputError that names the claim for a wrong key or rule."""
    known = {one.name for one in fields(Claim)} - {"id", "document"}
    for key in entry:
        if key not in known:
            raise InputError(f"claim {name}: there is no key {key!r}; {suggest(key, known)}")
    tests = entry.pop("tests", [])
    for test in tests:
        if test.get("rule") not in RULES:
            raise InputError(f"claim {name}: no rule {test.get('rule')!r}; {suggest(str(test.get('rule')), RULES)}")
        wrong = set(test) - {"rule", "label", "control"} - set(inspect.signature(RULES[test["rule"]]).parameters)
        if wrong:
            raise InputError(f"claim {name}: rule {test['rule']!r} takes no {', '.join(sorted(wrong))}")
    if sum(map(bool, (tests, entry.get("proof"), entry.get("reason")))) != 1:
        raise InputError(f"claim {name} needs exactly one of tests, proof and reason")
    return Claim(id=name, document=document, tests=tuple(tests), **entry)

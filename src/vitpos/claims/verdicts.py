"""Judges claims: applies their rules to stored runs, and combines the answers of several tests into one verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal, get_type_hints

from vitpos.claims import proofs
from vitpos.claims.ledger import Claim, fixed_rules
from vitpos.claims.outcomes import Outcome, Series
from vitpos.claims.rules import RULES
from vitpos.claims.stored_runs import NotMeasured, StoredRun

Status = Literal[
    "holds", "does not hold", "holds only if", "inconclusive", "measured", "not decidable here", "not measured yet"
]  # fmt: skip


@dataclass(frozen=True)
class Verdict:
    """The verdict on a claim.

    Args:
        claim: The claim.
        status: The verdict in one phrase.
        condition: For ``holds only if``, the labels of the tests that hold, and of those that do not; otherwise empty.
        outcomes: Label of a test → its answer and numbers.
        reason: Why there is no verdict, and the command that would give one; empty otherwise.
    """

    claim: Claim
    status: Status
    condition: str = ""
    outcomes: Mapping[str, Outcome] | None = None
    reason: str = ""


def judge(claim: Claim, runs: Mapping[str, StoredRun]) -> Verdict:
    """Returns the verdict on a claim from stored runs.

    Args:
        claim: The claim.
        runs: Experiment → its stored run. A run counts only if it was started under the present rule, after this was fixed.
    """
    if claim.reason:
        return Verdict(claim, "not decidable here", reason=f"{claim.reason}; {claim.command}".rstrip("; "))
    if claim.proof:
        return _combine(claim, getattr(proofs, claim.proof)())
    command = f"vitpos claims --id {claim.id} --run --out DIR"
    run = runs.get(claim.experiment)
    if run is None:
        return Verdict(claim, "not measured yet", reason=f"no run of {claim.experiment}; {command}")
    if run.rules.get(claim.id) != claim.sha256:
        what = "the rule was changed after" if claim.id in run.rules else "the rule was not recorded at"
        return Verdict(claim, "not measured yet", reason=f"{what} the start of {claim.experiment}; {command}")
    if claim.id in (fixed := fixed_rules()) and _time(run.started) < _time(fixed[claim.id]["fixed"]):
        return Verdict(claim, "not measured yet", reason=f"{claim.experiment} was started before this rule; {command}")
    try:
        outcomes = {
            test.get("label", f"test {number}" if len(claim.tests) > 1 else ""): _apply(test, claim, run)
            for number, test in enumerate(claim.tests, 1)
        }
    except NotMeasured as missing:
        return Verdict(claim, "not measured yet", reason=f"{missing}; {command}")
    return _combine(claim, outcomes)


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _apply(test: Mapping[str, Any], claim: Claim, run: StoredRun) -> Outcome:
    """Returns the outcome of one test: reads its series from the run and calls its rule."""
    rule, unit = RULES[test["rule"]], test.get("unit", claim.unit)
    hints = get_type_hints(rule)
    shown = "percentage points" if unit == "points" and any(map(_is_difference, test.values())) else unit
    options: dict[str, Any] = {"unit": shown} if "unit" in hints else {}
    for name, value in test.items():
        if hints.get(name) == Series:
            options[name] = _series(value, claim, run, unit)
        elif hints.get(name) == Sequence[Series]:
            options[name] = [_series(terms, claim, run, unit) for terms in value]
        elif name in hints:
            options[name] = value
    outcome = rule(**options)
    return replace(outcome, numbers=_compared(test) + outcome.numbers)


def _is_difference(value: Any) -> bool:
    """Returns whether a value of a test is a weighted sum of selections whose weights add up to 0."""
    if not isinstance(value, list) or not all(isinstance(term, Mapping) for term in value):
        return False
    return bool(value) and abs(sum(term.get("times", 1.0) for term in value)) < 1e-6


def _compared(test: Mapping[str, Any]) -> str:
    """Returns what a test compares, such as ``learned against none: ``: the values in which two selections differ.

    Empty for tests of one number, and for weighted sums.
    """
    first, second = test.get("first"), test.get("second")
    if not isinstance(first, Mapping) or not isinstance(second, Mapping):
        return ""
    differ = [
        key for key in (*first, *(key for key in second if key not in first)) if first.get(key) != second.get(key)
    ]
    names = (", ".join(str(one[key]) for key in differ if one.get(key, "") != "") for one in (first, second))
    return " against ".join(name or "plain" for name in names) + ": "


def _series(terms: Any, claim: Claim, run: StoredRun, unit: str) -> dict[int, float]:
    """Returns seed → value of a selection of a test, in percentage points if that is the unit."""
    single = [terms] if isinstance(terms, Mapping) else terms
    found = run.series([{**claim.select, **term} for term in single], claim.seed_list)
    return {seed: value * (100 if unit == "points" else 1) for seed, value in found.items()}


def _combine(claim: Claim, outcomes: Mapping[str, Outcome]) -> Verdict:
    """Returns the verdict of the tests of a claim; numbers that are only measured do not count.

    Tests are alternatives, such as readings of a claim or models: some may hold and others not. If ``joint``, all have to
    hold. If a control does not hold, the others say nothing.
    """
    answers = {label: outcome.answer for label, outcome in outcomes.items() if outcome.answer != "measured"}
    if not answers:
        return Verdict(claim, "measured", outcomes=outcomes)
    if any(answers.pop(label) != "holds" for label in claim.controls):
        return Verdict(claim, "inconclusive", outcomes=outcomes)
    held, failed, undecided = (
        [label for label, answer in answers.items() if answer == wanted]
        for wanted in ("holds", "does not hold", "inconclusive")
    )
    if not failed and not undecided:
        return Verdict(claim, "holds", outcomes=outcomes)
    if failed and (claim.joint or not (held or undecided)):
        return Verdict(claim, "does not hold", outcomes=outcomes)
    if not (held and failed):
        return Verdict(claim, "inconclusive", outcomes=outcomes)
    others = (("fails", failed), ("undecided", undecided))
    rest = " – ".join(f"{what}: {'; '.join(labels)}" for what, labels in others if labels)
    return Verdict(claim, "holds only if", condition=f"{'; '.join(held)} ({rest})", outcomes=outcomes)

"""The ledger is well formed, its rules are the fixed ones, and stored runs were started after their rules were fixed."""

import re
from datetime import datetime
from pathlib import Path

import pytest

from vitpos.claims import proofs
from vitpos.claims.ledger import FIRST_SEED, _claim, find_claims, fixed_rules
from vitpos.claims.stored_runs import load_runs
from vitpos.data.corruptions import CORRUPTIONS
from vitpos.errors import InputError
from vitpos.evaluations import EVALUATIONS
from vitpos.lab.experiment import Experiment, shipped
from vitpos.lab.settings import SPECS

STORED = Path(__file__).parents[2] / "results" / "claims"
CLAIMS = {claim.id: claim for claim in find_claims()}


def test_every_claim_has_a_rule_that_was_fixed():
    assert {name: claim.sha256 for name, claim in CLAIMS.items() if not claim.reason} == {
        name: rule["sha256"] for name, rule in fixed_rules().items()
    }


@pytest.mark.parametrize("claim", CLAIMS.values(), ids=CLAIMS)
def test_a_claim_names_what_exists(claim):
    assert claim.statement.endswith(".") and claim.published
    assert not claim.experiment or claim.experiment in shipped()
    assert not claim.proof or callable(getattr(proofs, claim.proof))
    assert not claim.tests or (claim.experiment and claim.core_hours > 0 and claim.seeds >= 3)
    assert claim.reason or not claim.command
    labels = [test.get("label") for test in claim.tests]
    assert len(set(labels)) == len(labels) and (len(labels) < 2 or None not in labels)


def test_stored_runs_were_started_under_the_present_rules_after_these_were_fixed():
    for run in load_runs([STORED] if STORED.is_dir() else []).values():
        assert run.rules and min(run.seeds) >= FIRST_SEED and run.commit
        for name, rule in run.rules.items():
            assert rule == CLAIMS[name].sha256, f"{run.experiment}: the rule of {name} was changed after the run"
            fixed = datetime.fromisoformat(fixed_rules()[name]["fixed"])
            assert datetime.fromisoformat(run.started) >= fixed, name


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"statment": "x"}, "no key 'statment'; did you mean 'statement'?"),
        ({"statement": "x", "tests": [{"rule": "higer"}]}, "no rule 'higer'; did you mean 'higher'?"),
        ({"statement": "x", "tests": [{"rule": "higher", "within": 1}]}, "rule 'higher' takes no within"),
        ({"statement": "x"}, "needs exactly one of tests, proof and reason"),
    ],
)
def test_a_wrong_entry_is_one_line(entry, message):
    with pytest.raises(InputError, match=message):
        _claim("X1", "mjp", entry)


def test_claims_are_found_by_id_and_document():
    assert [claim.id for claim in find_claims(["L2", "M5"])] == ["M5", "L2"]
    assert {claim.document for claim in find_claims(document="mjp")} == {"mjp"}
    with pytest.raises(InputError, match="no claim 'M99'"):
        find_claims(["M99"])
    with pytest.raises(InputError, match="no document 'mjpp'; did you mean 'mjp'"):
        find_claims(document="mjpp")


def _terms(test):
    """Yields the selections of a test: its series, the terms of sums, and the members of lists."""
    for value in test.values():
        items = value if isinstance(value, list) else [value]
        for item in items:
            yield from [one for one in (item if isinstance(item, list) else [item]) if isinstance(one, dict)]


@pytest.mark.parametrize("claim", [claim for claim in CLAIMS.values() if claim.tests], ids=lambda claim: claim.id)
def test_every_selection_is_one_evaluation_of_one_model_of_the_experiment(claim):
    experiment = Experiment.load(claim.experiment, seeds=[FIRST_SEED])
    for term in (claim.select | term for test in claim.tests for term in _terms(test)):
        cells = [
            cell
            for cell in experiment.cells
            if EVALUATIONS.canonical(term["evaluation"]) in cell.evaluations
            and all(
                SPECS[key].canonical(value) == getattr(cell, key) if key in SPECS else value == cell.train_value(key)
                for key, value in term.items()
                if key in SPECS or key.startswith("train.")
            )
        ]
        assert len(cells) == 1, (term, [cell.label for cell in cells])


@pytest.mark.parametrize("claim", [claim for claim in CLAIMS.values() if claim.tests], ids=lambda claim: claim.id)
def test_every_selected_metric_is_in_the_docstring_of_its_evaluation(claim):
    for term in ({"metric": "accuracy"} | claim.select | term for test in claim.tests for term in _terms(test)):
        name = EVALUATIONS.parse(term["evaluation"])[0].name
        documented = EVALUATIONS.describe(name).prose
        if name in ("april", "gradient_matching"):  # which refer to closed_form
            documented += EVALUATIONS.describe("closed_form").prose
        metric = term["metric"]
        if name == "corruption" and metric.removeprefix("error_") in CORRUPTIONS:
            metric = "error_gaussian_noise"  # and so on
        assert re.search(rf"\b{metric}\b", documented), term

"""The published ledger, ``results/claims/README.md``, is that of the stored runs; the documentation quotes its verdicts."""

import re
from pathlib import Path

import pytest

from vitpos.claims.ledger import find_claims
from vitpos.claims.stored_runs import load_runs
from vitpos.claims.verdicts import judge
from vitpos.report.claims_page import claims_page

ROOT = Path(__file__).parents[2]
STORED = ROOT / "results" / "claims"
RUNS = load_runs([STORED])


@pytest.fixture(scope="module")
def verdicts():
    return {claim.id: judge(claim, RUNS) for claim in find_claims()}


def lines_without_roundoff(page):
    """Returns the lines of a page; without numbers where a claim was decided by calculation, whose last digits differ."""
    return [re.sub(r"[\d.e−-]+", "", line) if "| calculation |" in line else line for line in page.splitlines()]


def test_the_published_ledger_is_that_of_the_stored_runs(verdicts):
    written = (STORED / "README.md").read_text()
    assert lines_without_roundoff(written) == lines_without_roundoff(
        claims_page(list(verdicts.values()), RUNS, "claims.md")
    ), "vitpos claims --page results/claims/README.md writes it"

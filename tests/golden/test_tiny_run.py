"""A tiny experiment gives the results and the inspection that it gave before the redesign."""

import csv
import json

import pytest

from tests.golden import adapter, names
from tests.golden.stored import TINY_INSPECT, TINY_RESULTS, read
from tests.golden.tiny import INSPECTED, flat, report, run_tiny

RELATIVE = 1e-3  # kernels for SSE, AVX2 and AVX-512 give the same fractions; other numbers differ by up to 2e-4
ABSOLUTE = 1e-6  # what is zero but for rounding
PERFECT = 100.0  # dB: a higher PSNR is rounding, and differs by up to 7 dB


def results_that_changed(run):
    found, wrong = adapter.read_results(run / "results.csv"), {}
    with TINY_RESULTS.open(newline="") as file:
        for row in csv.DictReader(file):
            specs = row["data"], row["model"], row["encoding"], int(row["seed"]), row["evaluation"]
            key, value = adapter.row_of_today(*specs, row["metric"]), float(row["value"])
            today = found.get(key)
            if row["metric"].startswith("psnr") and today is not None:
                value, today = min(value, PERFECT), min(today, PERFECT)
            if today is None or today != pytest.approx(value, rel=RELATIVE, abs=ABSOLUTE):
                wrong[key] = f"{today}, before {value}"
    return wrong


def inspected_values_that_changed(run, encoding):
    found, wrong = flat(json.loads((run / f"{INSPECTED.index(encoding)}.json").read_text())), {}
    for key, value in read(TINY_INSPECT)[encoding].items():
        today = found.get(names.inspect_key(key))
        expected = names.inspect_value(value) if isinstance(value, str) else value
        if isinstance(value, float):
            expected = pytest.approx(value, rel=RELATIVE, abs=ABSOLUTE)
        if today is None or today != expected:
            wrong[encoding, key] = f"{today}, before {value}"
    return wrong


@pytest.mark.slow
def test_results_and_inspections_are_those_of_before(tmp_path):
    """One test, so that the experiment is run once however tests are spread over processes."""
    run = run_tiny(tmp_path)
    wrong = results_that_changed(run)
    for encoding in INSPECTED:
        wrong |= inspected_values_that_changed(run, encoding)
    assert not wrong, report(wrong)

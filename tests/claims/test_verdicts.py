"""Stored numbers decide the verdicts; numbers of lower seeds, or measured under another rule, judge nothing."""

import json
from dataclasses import replace

import pytest

from vitpos.claims.ledger import Claim, find_claims
from vitpos.claims.stored_runs import StoredRun, load_runs
from vitpos.claims.verdicts import judge
from vitpos.errors import InputError, RunError
from vitpos.files import write_csv

CLAIM = Claim(
    id="X1",
    document="mjp",
    statement="Learned positions help.",
    experiment="tiny",
    seeds=3,
    select={"evaluation": "accuracy"},
    tests=(
        {"label": "digits", "rule": "higher", "by": 5, "first": {"data": "mnist", "encoding": "learned"},
         "second": {"data": "mnist", "encoding": "none"}},
        {"label": "clothes", "rule": "higher", "by": 5, "first": {"data": "fashion_mnist", "encoding": "learned"},
         "second": {"data": "fashion_mnist", "encoding": "none"}},
    ),
)  # fmt: skip


def row(data, encoding, seed, value, **other):
    columns = {"experiment": "tiny", "data": data, "model": "minimal", "encoding": encoding, "seed": str(seed)}
    return columns | {"evaluation": "accuracy", "metric": "accuracy", "x": "", "value": str(value)} | other


def run_with(values, claim=CLAIM, seeds=(100, 101, 102)):
    noise = {"none": 0.001, "learned": -0.001}
    rows = [
        row(data, encoding, seed, value + noise[encoding] * (seed % 3 - 1))
        for (data, encoding), value in values.items()
        for seed in seeds
    ]
    return {"tiny": StoredRun("tiny", rows, {claim.id: claim.sha256}, "2026-11-18T12:00:00+00:00")}


def values(digits, clothes):
    return {
        ("mnist", "none"): 0.5, ("mnist", "learned"): 0.5 + digits,
        ("fashion_mnist", "none"): 0.4, ("fashion_mnist", "learned"): 0.4 + clothes,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("digits", "clothes", "status", "condition"),
    [
        (0.2, 0.2, "holds", ""),
        (0.2, -0.1, "holds only if", "digits (fails: clothes)"),
        (-0.1, 0.2, "holds only if", "clothes (fails: digits)"),
        (-0.1, 0.0, "does not hold", ""),
        (0.2, 0.049, "inconclusive", ""),
        (-0.1, 0.049, "inconclusive", ""),
    ],
)
def test_the_verdict_follows_from_the_numbers(digits, clothes, status, condition):
    verdict = judge(CLAIM, run_with(values(digits, clothes)))
    assert (verdict.status, verdict.condition) == (status, condition)
    assert set(verdict.outcomes) == {"digits", "clothes"}
    assert verdict.outcomes["digits"].numbers.startswith("learned against none: ")
    assert " points" in verdict.outcomes["digits"].numbers and " % and 50 %" in verdict.outcomes["digits"].numbers


def test_tests_that_must_hold_together_fail_with_one_of_them_and_a_failed_control_decides_nothing():
    joint = replace(CLAIM, joint=True)
    assert joint.sha256 != CLAIM.sha256
    for digits, clothes, status in (
        (0.2, 0.2, "holds"), (0.2, -0.1, "does not hold"), (0.049, -0.1, "does not hold"), (0.2, 0.049, "inconclusive"),
    ):  # fmt: skip
        verdict = judge(joint, run_with(values(digits, clothes), joint))
        assert (verdict.status, verdict.condition) == (status, ""), (digits, clothes)
    control = replace(CLAIM, tests=(CLAIM.tests[0], CLAIM.tests[1] | {"control": True}))
    for digits, clothes, status in (
        (0.2, 0.2, "holds"), (-0.1, 0.2, "does not hold"), (0.2, -0.1, "inconclusive"), (-0.1, -0.1, "inconclusive"),
    ):  # fmt: skip
        assert judge(control, run_with(values(digits, clothes), control)).status == status, (digits, clothes)


def test_readings_that_hold_fail_and_are_undecided_are_all_named():
    third = {**CLAIM.tests[0], "label": "third", "by": 20.05, "negligible": 0}
    claim = replace(CLAIM, tests=(*CLAIM.tests, third))
    verdict = judge(claim, run_with(values(0.2, -0.1), claim))
    assert verdict.condition == "digits (fails: clothes – undecided: third)"


def test_a_run_that_was_started_before_its_rule_was_fixed_judges_nothing():
    claim = find_claims(["M5"])[0]
    rows = [
        row("mnist", encoding, seed, 0.5 + 0.4 * (encoding == "learned") + seed / 1e5)
        for encoding in ("none", "learned")
        for seed in claim.seed_list
    ]
    run = StoredRun(claim.experiment, rows, {"M5": claim.sha256}, "2027-01-01T00:00:00+00:00")
    assert judge(claim, {claim.experiment: run}).status == "holds"
    early = judge(claim, {claim.experiment: replace(run, started="2026-11-18T13:39:59+00:00")})
    assert early.status == "not measured yet" and "was started before this rule" in early.reason


def test_numbers_that_are_only_measured_are_shown_and_judge_nothing():
    first = {"label": "digits", "rule": "measured", "value": {"data": "mnist", "encoding": "learned"}}
    alone = replace(CLAIM, tests=(first, {**first, "label": "without", "value": {"data": "mnist", "encoding": "none"}}))
    found = judge(alone, run_with(values(0.2, 0.2), alone))
    assert found.status == "measured" and not found.condition
    assert found.outcomes["digits"].numbers.startswith("70 % (95 % interval ")
    beside = replace(CLAIM, tests=(first, CLAIM.tests[1]))
    assert judge(beside, run_with(values(0.2, 0.2), beside)).status == "holds"
    assert judge(beside, run_with(values(0.2, -0.1), beside)).status == "does not hold"


def test_numbers_of_lower_seeds_or_of_another_rule_judge_nothing():
    early = judge(CLAIM, run_with(values(0.2, 0.2), seeds=(0, 1, 2)))
    assert early.status == "not measured yet" and "0 of 3 seeds" in early.reason
    partly = judge(CLAIM, run_with(values(0.2, 0.2), seeds=(100, 102)))
    assert partly.status == "not measured yet" and "2 of 3 seeds" in partly.reason
    other = replace(CLAIM, seeds=2)
    changed = judge(other, run_with(values(0.2, 0.2)))
    assert changed.status == "not measured yet" and "the rule was changed after the start of tiny" in changed.reason
    assert judge(CLAIM, {}).status == "not measured yet"
    assert "vitpos claims --id X1 --run" in judge(CLAIM, {}).reason


def test_a_selection_must_name_one_number_per_seed():
    runs = run_with(values(0.2, 0.2))
    loose = replace(CLAIM, tests=({"rule": "above", "than": 1, "value": {"encoding": "learned"}},))
    runs["tiny"].rules["X1"] = loose.sha256
    with pytest.raises(InputError, match="several numbers of seed 100"):
        judge(loose, runs)


def test_terms_are_weighted_and_summed():
    run = run_with(values(0.2, 0.1))["tiny"]
    terms = [{"data": "mnist", "encoding": "learned"}, {"data": "mnist", "encoding": "none", "times": -1}]
    claim = replace(CLAIM, tests=({"rule": "above", "than": 10, "value": terms},))
    run.rules["X1"] = claim.sha256
    (outcome,) = judge(claim, {"tiny": run}).outcomes.values()
    assert outcome.numbers.startswith("20 percentage points (95 % interval"), (
        "a difference of percentages is no percentage"
    )
    gain = run.series(
        [{"data": "mnist", "encoding": "learned", "times": 2}, {"data": "mnist", "encoding": "none", "times": -1}],
        [101],
    )
    learned, none = (run.series({"data": "mnist", "encoding": name}, [101])[101] for name in ("learned", "none"))
    assert gain[101] == pytest.approx(2 * learned - none)


def test_a_stored_run_is_read_as_it_was_saved(tmp_path):
    (run,) = run_with(values(0.2, 0.1)).values()
    path = run.save(tmp_path)
    assert load_runs([tmp_path]) == {"tiny": run} == load_runs([path])
    path.with_suffix(".json").unlink()
    with pytest.raises(InputError, match="is no run of claims"):
        load_runs([path])


def test_an_unfinished_run_deletes_no_stored_numbers(tmp_path):
    (whole,) = run_with(values(0.2, 0.1)).values()
    whole.save(tmp_path)
    replace(whole, rows=[row("mnist", "none", 100, 0.25)], rules={}).save(tmp_path)
    (stored,) = load_runs([tmp_path]).values()
    assert len(stored.rows) == len(whole.rows) and stored.rules == whole.rules
    assert stored.series({"data": "mnist", "encoding": "none"}, [100]) == {100: 0.25}
    assert stored.series({"data": "mnist", "encoding": "none"}, [101]) == whole.series(
        {"data": "mnist", "encoding": "none"}, [101]
    )
    with pytest.raises(InputError, match="has no numbers yet"):
        replace(whole, rows=[]).save(tmp_path)


def test_negative_numbers_are_saved_as_numbers(tmp_path):
    run = StoredRun("tiny", [row("mnist", "none", 100, -1.5)], {}, "2026-11-18T12:00:00+00:00")
    run.save(tmp_path)
    run.save(tmp_path)
    (stored,) = load_runs([tmp_path]).values()
    assert stored.series({"encoding": "none"}, [100]) == {100: -1.5}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("rules", ["X1"]), ("rules", {"X1": 5}), ("rules", None), ("started", 5), ("started", "yesterday"),
        ("started", "2026-11-18T12:00:00"), ("machine", "pc"), ("machine", {"processor": 7}), ("commit", None),
        ("core_hours", "many"), ("core_hours", -3), ("core_hours", float("inf")), ("experiment", 1), ("unknown", 1),
    ],
)  # fmt: skip
def test_a_record_with_wrong_values_is_one_line(tmp_path, key, value):
    (run,) = run_with(values(0.2, 0.1)).values()
    record = run.save(tmp_path).with_suffix(".json")
    record.write_text(json.dumps(json.loads(record.read_text()) | {key: value}))
    with pytest.raises(RunError, match=r"^\S+tiny\.json is damaged \(.*\); restore it, or save the run again$"):
        load_runs([tmp_path])


@pytest.mark.parametrize(
    ("old", "new"),
    [(",0.5", ",0.55"), ("0.7", "5.0"), ("\n", "\r\n"), (",value", ",values"), ("tiny,", "other,"), ("none", "")],
)
def test_a_table_that_was_edited_is_refused(tmp_path, old, new):
    (run,) = run_with(values(0.2, 0.1)).values()
    path = run.save(tmp_path)
    content = path.read_bytes()
    assert old.encode() in content
    path.write_bytes(content.replace(old.encode(), new.encode(), 1))
    with pytest.raises(RunError, match=r"tiny\.csv is damaged .*it is not the file that tiny\.json was written for"):
        load_runs([tmp_path])


@pytest.mark.parametrize(("column", "text"), [("value", "abc"), ("value", "nan"), ("seed", "1.5"), ("experiment", "x")])
def test_results_that_are_no_numbers_of_the_experiment_are_one_line(tmp_path, column, text):
    (run,) = run_with(values(0.2, 0.1)).values()
    rows = [row("mnist", "none", 100, 0.5) | {column: text}]
    write_csv(tmp_path / "results.csv", list(rows[0]), [list(one.values()) for one in rows])
    record = {"experiment": "tiny", "rules": dict(run.rules), "started": run.started}
    (tmp_path / "claims.json").write_text(json.dumps(record))
    with pytest.raises(RunError, match=r"results\.csv is damaged \(.*\); restore it, or save the run again"):
        load_runs([tmp_path])


def test_a_run_in_parts_is_joined_by_seed(tmp_path):
    whole = run_with(values(0.2, 0.1))["tiny"]
    machine = {"processor": "EPYC", "instructions": "AVX2"}
    first = replace(run_with(values(0.2, 0.1), seeds=(100,))["tiny"], commit="a", machine=machine, core_hours=1.5)
    rest = replace(
        run_with(values(0.2, 0.1), seeds=(101, 102))["tiny"], commit="b", machine=machine | {"instructions": "AVX512"},
        core_hours=2.0, started="2026-11-19T12:00:00+00:00",
    )  # fmt: skip
    first.save(tmp_path)
    rest.save(tmp_path)
    (stored,) = load_runs([tmp_path]).values()
    assert stored == first.joined(rest) == load_runs([tmp_path, tmp_path])["tiny"]
    key = lambda row: sorted(row.items())  # noqa: E731
    assert sorted(stored.rows, key=key) == sorted(whole.rows, key=key) and stored.seeds == [100, 101, 102]
    assert (stored.commit, stored.core_hours, stored.started) == ("a, b", 3.5, first.started)
    assert stored.machine == {"processor": "EPYC", "instructions": "AVX2, AVX512"}
    assert judge(CLAIM, {"tiny": stored}) == judge(CLAIM, {"tiny": whole})

    assert stored.joined(replace(rest, rows=rest.rows[:1])).commit == "a, b"
    other_rule = replace(rest, rules={"X1": "another"})
    assert judge(CLAIM, {"tiny": first.joined(other_rule)}).status == "not measured yet"
    again = replace(run_with(values(0.4, 0.1), seeds=(100,))["tiny"], commit="c")
    assert first.joined(again) == again, "of a seed that both have, the last numbers are taken"
    for other in (
        replace(rest, rows=[row("mnist", "none", 101, 0.5, extra="x")]),
        replace(rest, experiment_sha256="c"),
    ):
        with pytest.raises(InputError, match="tiny was changed between two of its runs"):
            first.joined(other)


def test_what_cannot_be_decided_names_its_reason_and_command():
    verdict = judge(find_claims(["S1"])[0], {})
    assert verdict.status == "not decidable here" and "GPU" in verdict.reason and "vitpos run" in verdict.reason


@pytest.mark.parametrize("claim", [claim for claim in find_claims() if claim.proof], ids=lambda claim: claim.id)
def test_a_claim_decided_by_calculation_has_a_verdict(claim):
    verdict = judge(claim, {})
    assert verdict.status in ("holds", "holds only if", "does not hold") and all(verdict.outcomes.values())

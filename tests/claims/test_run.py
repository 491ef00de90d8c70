"""A run of claims stores the rules under which it was started, can be continued, and gives verdicts."""

import json
from dataclasses import replace

import pytest

from tests.processes import vitpos
from vitpos.claims.ledger import Claim
from vitpos.claims.run import record_rules, run_claims
from vitpos.claims.stored_runs import load_runs
from vitpos.claims.verdicts import judge
from vitpos.errors import InputError
from vitpos.lab.events import Observer
from vitpos.lab.experiment import Experiment
from vitpos.report.claims_page import write_claims


def test_a_run_gives_a_verdict_and_refuses_a_rule_that_was_changed(tmp_path):
    (tmp_path / "tiny.toml").write_text(
        "data = 'mnist(limit=64, test_limit=100)'\nmodel = 'minimal(dim=8)'\nencoding = ['none', 'learned']\n"
        "evaluations = ['jigsaw']\n[train]\nepochs = 1\n"
    )
    claim = Claim(
        id="X1", document="mnist-jigsaw", statement="Order does not matter.", published="all equal",
        experiment=str(tmp_path / "tiny.toml"), seeds=3, unit="logits",
        select={"evaluation": "jigsaw", "metric": "logit_difference"},
        tests=({"rule": "every_seed", "most": 1e-4, "value": {"encoding": "none"}},),
    )  # fmt: skip
    (folder,) = run_claims([claim], tmp_path / "out", workers=1, observer=Observer())
    record = json.loads((folder / "claims.json").read_text())
    assert record["rules"] == {"X1": claim.sha256} and record["started"].endswith("+00:00") and record["machine"]
    assert record["core_hours"] > 0
    runs = load_runs([tmp_path / "out"])
    verdict = judge(claim, runs)
    assert verdict.status == "holds" and runs[claim.experiment].seeds == [100, 101, 102]
    page = write_claims([verdict], runs, tmp_path / "claims.html").read_text()
    assert "Order does not matter." in page and "3 seeds" in page and "holds" in page
    assert write_claims([verdict], runs, tmp_path / "CLAIMS.MD").read_text().startswith("# What four documents claim")
    (row,) = [
        line for line in write_claims([verdict], runs, tmp_path / "claims.md").read_text().splitlines() if "X1" in line
    ]
    assert row.count(" | ") == 5 and "Order does not matter." in row and "**holds**" in row

    (part,) = run_claims([claim], tmp_path / "part", seeds=[101], workers=1, observer=Observer())
    assert load_runs([part])[claim.experiment].rows == [
        row for row in runs[claim.experiment].rows if row["seed"] == "101"
    ]
    with pytest.raises(InputError, match=r"--seeds 7: the claims of .* are judged by seeds \[100, 101, 102\]"):
        run_claims([claim], tmp_path / "part", seeds=[7], observer=Observer())

    (folder / "claims.json").rename(tmp_path / "record.json")
    with pytest.raises(InputError, match=r"has models, and no claims\.json to say under which rules"):
        run_claims([claim], tmp_path / "out", workers=1, observer=Observer())
    (tmp_path / "record.json").rename(folder / "claims.json")

    changed = replace(claim, tests=({"rule": "every_seed", "most": 2e-4, "value": {"encoding": "none"}},))
    with pytest.raises(InputError, match="the rule of X1 has changed since"):
        run_claims([changed], tmp_path / "out", workers=1, observer=Observer())
    assert json.loads((folder / "claims.json").read_text()) == record, "a refused run leaves the record as it was"

    experiment = Experiment.load(claim.experiment, seeds=[100])
    record_rules(folder, experiment, [claim, replace(changed, id="X2")])
    later = load_runs([tmp_path / "out"])[claim.experiment]
    assert later.rules == {"X1": claim.sha256, "X2": changed.sha256} and later.started == record["started"]
    record_rules(tmp_path / "other", experiment, [claim])  # the same training, whatever the seeds
    other = json.loads((tmp_path / "other" / "claims.json").read_text())
    assert other["experiment_sha256"] == record["experiment_sha256"] == later.experiment_sha256
    longer = Experiment.load(claim.experiment, ["train.epochs=2"], seeds=[100])
    record_rules(tmp_path / "longer", longer, [claim])
    assert json.loads((tmp_path / "longer" / "claims.json").read_text())["experiment_sha256"] != later.experiment_sha256


def test_the_command_prints_verdicts_and_json(tmp_path):
    done = vitpos("claims", "--id", "L2", "--id", "S1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "holds only if" in done.stdout and "not decidable here" in done.stdout
    records = json.loads(vitpos("claims", "--id", "M5", "--json", cwd=tmp_path).stdout)
    done = vitpos("claims", "--id", "M5", cwd=tmp_path)
    assert "results/claims is not here" in done.stderr and done.returncode == 0
    assert records[0]["verdict"] == "not measured yet" and "--id M5 --run --out DIR" in records[0]["reason"]
    done = vitpos("claims", "--id", "L2", "--page", tmp_path / "claims.html", cwd=tmp_path)
    assert done.returncode == 0 and "each token moves with its patch" in (tmp_path / "claims.html").read_text()
    for words, message in (
        (["--id", "Q1"], "no claim 'Q1'"),
        ([tmp_path / "nothing"], "is no run of claims"),
        (["--run"], "--out"),
        (["--seeds", "100"], "--seeds goes with --run"),
    ):
        done = vitpos("claims", *words, cwd=tmp_path)
        assert done.returncode == 2 and message in done.stderr and "Traceback" not in done.stderr, done.stderr

"""Numbers that were computed with different vector instructions are not compared without a note."""

import json
import os
import subprocess
import sys

import pytest

from tests.report.runs import TEXT, page_of, stored
from vitpos.cli.tables import output, show_evaluation, show_table
from vitpos.lab.machine import vector_instructions
from vitpos.lab.results import Results
from vitpos.report import write_report

OURS = vector_instructions()
OTHER = "AVX512" if OURS == "AVX2" else "AVX2"
NOTE = f"{{}} with different vector instructions ({', '.join(sorted((OURS, OTHER)))}), which changes "


def edit(path, change):
    values = json.loads(path.read_text())
    change(values)
    path.write_text(json.dumps(values))


@pytest.fixture
def run(tmp_path):
    return stored(tmp_path / "run", lambda cell: {"accuracy": {"accuracy": 0.5}, "cost": {"parameters": 1.5}})


def texts(folder):
    """What is shown of a run: its table, its evaluation ``accuracy``, its page, and as plain text."""
    folder = Results.open(folder.path)
    with output.capture() as table:
        show_table(folder, folder.experiment.tables[0])
    with output.capture() as evaluation:
        show_evaluation(folder, "accuracy")
    return [" ".join(text.split()) for text in (table.get(), evaluation.get(), page_of(folder), repr(folder))]


def test_equal_instructions_need_no_note(run):
    assert not any("vector instructions" in text for text in texts(run))


def test_an_evaluation_that_was_added_with_others_is_noted(run):
    file = next(run.path.glob("cells/*/scores.json"))
    assert json.loads(file.read_text())["accuracy"]["instructions"] == OURS
    edit(file, lambda scores: scores["accuracy"].update(instructions=OTHER))
    assert all(NOTE.format("Evaluated") + "last digits." in text for text in texts(run))
    edit(file, lambda scores: scores["accuracy"].update(instructions=OURS))
    edit(file, lambda scores: scores["cost"].update(instructions=OTHER))
    table, evaluation, page, text = texts(run)
    assert NOTE.format("Evaluated") not in table + evaluation + text, "they show accuracy alone"
    assert page.count(NOTE.format("Evaluated")) == 1, "below the numbers of cost"


def test_trainings_with_others_are_noted_and_evaluations_without_instructions_have_those_of_the_training(run):
    cell = next(run.path.glob("cells/*"))
    edit(cell / "machine.json", lambda machine: machine.update(instructions=OTHER))
    edit(cell / "scores.json", lambda scores: [scores[name].pop("instructions") for name in scores])
    assert all(
        NOTE.format("Trained") + "results as another seed would." in text and "Evaluated" not in text
        for text in texts(run)
    )


def test_a_page_of_two_runs_notes_that_they_differ(run, tmp_path):
    other = stored(tmp_path / "other", lambda cell: {"accuracy": {"accuracy": 0.5}})
    assert "vector instructions" not in write_report([run, other], tmp_path / "page.html").read_text()
    for file in other.path.glob("cells/*/scores.json"):
        edit(file, lambda scores: scores["accuracy"].update(instructions=OTHER))
    page = write_report([run, Results.open(other.path)], tmp_path / "page.html").read_text()
    assert page.count(NOTE.format("Evaluated")) == 1, "at the top: in each of them all are equal"
    assert f"Vector instructions of the evaluations: {OTHER}." in page


def test_evaluate_stores_and_shows_the_instructions_of_its_own_process(tmp_path):
    if OURS == "DEFAULT":
        pytest.skip("this processor has no other instructions than the default")
    text = TEXT.replace("stripes(count=40)", "mnist + subset(limit=40, test_limit=40)").replace("(2, 4)", "7")
    run = stored(tmp_path / "run", lambda cell: {"accuracy": {"accuracy": 0.5}, "cost": {"parameters": 1.5}}, text)
    cell = next(run.path.glob("cells/*"))
    before = (cell / "machine.json").read_bytes()
    environment = {**os.environ, "ATEN_CPU_CAPABILITY": "default", "COLUMNS": "400"}
    words = [sys.executable, "-m", "vitpos", "evaluate", cell, "--with", "accuracy"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert (cell / "machine.json").read_bytes() == before
    used = {name: entry["instructions"] for name, entry in json.loads((cell / "scores.json").read_text()).items()}
    assert used == {"accuracy": "DEFAULT", "cost": OURS}
    note = f"Evaluated with different vector instructions ({', '.join(sorted((OURS, 'DEFAULT')))})"
    assert note in " ".join(done.stdout.split()) and note in (run.path / "report.html").read_text()
    assert "DEFAULT" not in (run.path / "results.csv").read_text()

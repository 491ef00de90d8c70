"""``vitpos.evaluate`` for any model, and the progress events of evaluations."""

import io
import queue

import pytest
import torch
from rich.console import Console as Terminal

import vitpos
from vitpos.data.dataset import load
from vitpos.errors import InputError
from vitpos.evaluations.result import Result
from vitpos.lab import console, events, executor
from vitpos.lab.cells import Cell
from vitpos.lab.dry_run import dry_run
from vitpos.lab.events import Observer
from vitpos.training.recipe import Recipe

DATA = "stripes(count=40)"
TEXT = f"""
data = "{DATA}"
model = "vit(patch=(2, 4), dim=8, depth=1, heads=2)"
encoding = "learned"
evaluations = ["accuracy", "gradient_matching(images=2, steps=3)"]
seeds = [0, 1]
train.epochs = 1
"""


class Recorder(Observer):
    def __init__(self):
        self.events = []

    def on_event(self, event):
        self.events.append(event)


@pytest.fixture
def experiment(tmp_path):
    (tmp_path / "one.toml").write_text(TEXT)
    return str(tmp_path / "one.toml")


def test_any_classifier_is_evaluated_on_a_data_set_or_its_spec():
    data = load(DATA)
    torch.manual_seed(0)
    model = vitpos.MODELS.build("cnn", data.shape, 2, "none").train()

    def brightness(ctx):
        return Result({"mean": ctx.data.test.images.double().mean().item()})

    found = vitpos.evaluate(model, data, ["accuracy", "confusion( )", brightness])
    assert list(found) == ["accuracy", "confusion", "brightness"] and model.training
    assert found["brightness"].numbers["mean"] == data.test.images.double().mean().item()
    assert found["confusion"].arrays and 0 <= found["accuracy"].numbers["accuracy"] <= 1
    assert vitpos.evaluate(model, DATA)["accuracy"] == found["accuracy"]
    with pytest.raises(InputError, match="got no data"):
        vitpos.evaluate(model)
    with pytest.raises(InputError, match="no evaluation 'acuracy'"):
        vitpos.evaluate(model, data, "acuracy")
    with pytest.raises(InputError, match="the Sequential returns no logits"):
        vitpos.evaluate(torch.nn.Sequential(), data)


def test_the_model_of_a_path_is_evaluated_on_the_data_of_its_training(experiment, tmp_path):
    results = vitpos.run(experiment, tmp_path / "out", workers=1)
    _, folder = results.trained[0]
    stored = folder.results["accuracy"]
    for path in (folder.path, str(folder.path), folder.path / "weights.safetensors"):
        assert vitpos.evaluate(path)["accuracy"].numbers == stored.numbers
    with pytest.raises(InputError, match="has 2 models; give the folder of one cell"):
        vitpos.evaluate(tmp_path / "out")
    with pytest.raises(InputError, match="there is no model 'nothing'"):
        vitpos.evaluate("nothing")


def test_a_long_evaluation_of_a_run_sends_its_progress(experiment, tmp_path):
    observer = Recorder()
    vitpos.run(experiment, tmp_path / "out", workers=1, observer=observer)
    sent = [event for event in observer.events if isinstance(event, events.EvalProgress)]
    assert {event.spec.partition("(")[0] for event in sent} == {"gradient_matching"}
    fractions = [event.fraction for event in sent if event.cell == sent[0].cell]
    assert fractions == sorted(fractions) and fractions[-1] == 1 and len(fractions) == 6


def test_worker_processes_send_the_progress_of_evaluations_at_most_five_times_a_second(experiment):
    cell = vitpos.Experiment.load(experiment).cells[0]
    forwarder = executor._Forwarder(sent := queue.Queue())
    forwarder.last -= 1
    for step in range(10):
        forwarder.on_event(events.EvalProgress(cell, "gradient_matching", step / 10))
    assert sent.get() == events.EvalProgress(cell, "gradient_matching", 0.0) and sent.empty()


def test_the_bar_of_a_cell_includes_the_finished_part_of_an_evaluation(experiment, tmp_path, monkeypatch):
    monkeypatch.setattr(console, "stderr", Terminal(file=io.StringIO(), force_terminal=True, width=100))
    cell = vitpos.Experiment.load(experiment).cells[0]
    with console.Console() as shown:
        shown.on_event(events.EvalStart(cell, "gradient_matching", 1, 3))
        shown.on_event(events.EvalProgress(cell, "gradient_matching", 0.5))
        assert [task.completed for task in shown.bars.tasks] == [1.5]


def test_two_evaluations_of_one_name_are_refused():
    model = vitpos.MODELS.build("cnn", load(DATA).shape, 2, "none")
    functions = [lambda ctx: Result({"one": 1.0}), lambda ctx: Result({"two": 2.0})]
    with pytest.raises(InputError, match="two evaluations are called '<lambda>'; give one of them another name"):
        vitpos.evaluate(model, DATA, functions)
    assert list(vitpos.evaluate(model, DATA, ["accuracy", "accuracy( )"])) == ["accuracy"]


def test_the_dry_run_refuses_a_result_that_cannot_be_stored(tmp_path):
    path = tmp_path / "wrong.py"
    path.write_text("from vitpos import Result\ndef wrong(ctx):\n    return Result(curves={'size': {'small': 0.5}})\n")
    cell = Cell("stripes(count=4)", "minimal(patch=4, dim=8)", "none", 0, Recipe(), (f"{path}:wrong",))
    with pytest.raises(InputError, match=r"a key of curves\['size'\] = 'small'; give a number"):
        dry_run([cell])

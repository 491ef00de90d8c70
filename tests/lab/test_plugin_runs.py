"""Runs with code from outside the package: recorded, found again by later commands, refused when it has changed."""

import json
import linecache
import sys
from functools import partial
from types import ModuleType

import pytest

import vitpos
from tests.processes import ENVIRONMENT, python
from vitpos.encodings import ENCODINGS
from vitpos.encodings.base import Geometry, PositionEncoding
from vitpos.encodings.learned import Learned
from vitpos.errors import InputError
from vitpos.lab.experiment import Experiment
from vitpos.registry.class_source import definitions, standalone_source
from vitpos.registry.plugin_records import TRUSTED
from vitpos.registry.plugins import PluginWarning

pytestmark = pytest.mark.usefixtures("forgetting")
TINY = {
    "data": "mnist + subset(limit=64)",
    "model": "minimal(patch=14, dim=8)",
    "evaluations": "accuracy",
    "train": {"epochs": 1, "batch_size": 64},
}
MINE = '''
from vitpos.encodings import register_encoding
from vitpos.encodings.base import PositionEncoding
from vitpos.evaluations import register_evaluation
from vitpos.evaluations.result import Result


@register_encoding("bell")
class Bell(PositionEncoding):
    """A bias that falls off as a bell curve."""

    def __init__(self, geometry, *, sigma: float = 1.0):
        super().__init__()
        self.sigma = sigma

    def bias(self, q, k, pos, layer):
        return -(pos.offsets().square().sum(-1)[:, None] / self.sigma).to(q.dtype)


@register_evaluation("always")
def always(ctx, *, number: float = 1.0):
    """One number.

    number: the number that was given.
    """
    return Result({"number": number})
'''


def vitpos_in(folder, *words):
    environment = {key: value for key, value in ENVIRONMENT.items() if key != TRUSTED}
    return python("-m", "vitpos", *words, cwd=folder, env={**environment, "COLUMNS": "200"})


def toml(values) -> str:
    lines = [f"{key} = {json.dumps(value)}" for key, value in values.items() if key != "train"]
    return "\n".join([*lines, "[train]", *(f"{key} = {value}" for key, value in values["train"].items())])


@pytest.mark.slow
def test_a_run_finds_its_plugins_again_and_says_when_they_are_gone_or_have_changed(tmp_path):
    home, elsewhere, out = tmp_path / "home", tmp_path / "elsewhere", tmp_path / "out"
    home.mkdir(), elsewhere.mkdir()
    (home / "mine.py").write_text(MINE)
    specs = ["bell(sigma=2)", "mine.py:Bell(sigma=3)"]
    (home / "tiny.toml").write_text(toml(TINY | {"encoding": specs, "evaluations": ["accuracy", "always"]}))
    command = ("run", home / "tiny.toml", "--out", out, "--workers", "2")
    done = vitpos_in(home, *command)
    assert done.returncode == 2 and "no encoding 'bell'" in done.stderr and not out.exists()
    done = vitpos_in(home, *command, "--plugin", "mine.py")
    assert done.returncode == 0, done.stderr
    record = json.loads((out / "plugins.json").read_text())["mine.py"]
    assert record["path"] == str(home / "mine.py") and len(record["sha256"]) == 64
    assert {"encoding bell", "encoding mine.py:Bell", "evaluation always"} == record["entries"].keys()
    cells = [json.loads(path.read_text())["encoding"] for path in out.glob("cells/*/cell.json")]
    assert sorted(cells) == ["bell(sigma=2.0)", "mine.py:Bell(sigma=3.0)"]

    done = vitpos_in(elsewhere, "evaluate", out, "--with", "always(number=3)")
    assert done.returncode == 0 and "note" not in done.stderr, done.stderr
    done = vitpos_in(elsewhere, *command)  # nothing is left to do, and no option is needed
    assert done.returncode == 0 and "note" not in done.stderr, done.stderr
    weights = next(out.glob("cells/bell*/weights.safetensors"), None) or next(out.glob("cells/*/weights.safetensors"))
    for source in (out, weights):
        done = vitpos_in(elsewhere, "inspect", source, "--out", tmp_path / "inspected", "--images", "5")
        assert done.returncode == 0, done.stderr

    (home / "mine.py").write_text(MINE + "\n# another version\n")
    done = vitpos_in(elsewhere, "evaluate", out, "--with", "always(number=4)")
    assert done.returncode == 0 and "note: plug-in mine.py has changed since" in done.stderr, done.stderr
    done = vitpos_in(home, *command)
    assert done.returncode == 2, done.stderr
    assert "error: plug-in mine.py has changed" in done.stderr and "delete the folder to train again" in done.stderr

    (home / "mine.py").unlink()
    done = vitpos_in(elsewhere, "report", out, "--out", tmp_path / "page.html")
    assert done.returncode == 0 and done.stderr.count("plug-in mine.py is gone") == 1, done.stderr
    assert "falls off as a bell curve" in (tmp_path / "page.html").read_text()
    done = vitpos_in(elsewhere, "evaluate", out, "--with", "accuracy")
    assert done.returncode == 2 and "error: " in done.stderr and "plug-in mine.py is gone" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_encoding_that_fails_at_work_is_one_line_before_anything_is_trained(tmp_path):
    (tmp_path / "bad.py").write_text(MINE.replace("pos.offsets()", "pos.nothing()"))
    (tmp_path / "tiny.toml").write_text(toml(TINY | {"encoding": "bad.py:Bell"}))
    done = vitpos_in(tmp_path, "run", "tiny.toml", "--out", "out")
    assert done.returncode == 2 and not (tmp_path / "out").exists()
    assert "AttributeError" in done.stderr and "bad.py, line 17" in done.stderr and "Traceback" not in done.stderr


SCRIPT = f'''
import json, sys
import vitpos
from vitpos.encodings.base import PositionEncoding

class Still(PositionEncoding):
    """Does nothing."""
    def __init__(self, geometry):
        super().__init__()

if __name__ == "__main__":
    results = vitpos.run({TINY!r}, sys.argv[1], encoding=["learned", Still], workers=2)
    print(json.dumps([cell.encoding for cell, _ in results.trained]))
'''


def test_a_class_from_a_script_is_stored_by_its_file(tmp_path):
    done = script(tmp_path, SCRIPT)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == ["learned", "script.py:Still"]
    done = vitpos_in(tmp_path.parent, "evaluate", tmp_path / "out", "--with", "accuracy")
    assert done.returncode == 0, done.stderr


def script(folder, text, *words):
    (folder / "script.py").write_text(text)
    return python("script.py", "out", *words, cwd=folder)


@pytest.mark.slow
def test_a_script_without_a_guard_gets_one_message_and_runs_once_it_has_one(tmp_path):
    done = script(tmp_path, SCRIPT.replace('__name__ == "__main__"', "True"))
    assert done.returncode == 1 and done.stderr.count("if __name__ == '__main__':") == 1
    assert "put the call there, or give workers=1" in done.stderr and "worker process died" not in done.stderr
    done = script(tmp_path, SCRIPT.replace("Does nothing.", "Does nothing at all."))  # nothing was trained yet
    assert done.returncode == 0 and "has changed" not in done.stderr, done.stderr


def test_a_script_may_be_edited_between_runs_except_for_the_classes_of_the_run(tmp_path):
    text = SCRIPT.replace("class Still", "SCALE = 1\n\nclass Still").replace("super()", "self.scale = SCALE; super()")
    text = text.replace("workers=2", "workers=1")
    assert script(tmp_path, text).returncode == 0
    done = script(tmp_path, text.replace("workers=1", "workers=1, seeds=[0, 1]") + "    print('done')\n")
    assert done.returncode == 0 and "has changed" not in done.stderr, done.stderr
    done = vitpos_in(tmp_path, "evaluate", "out", "--with", "accuracy")
    assert done.returncode == 0 and "has changed" not in done.stderr, done.stderr
    done = script(tmp_path, text.replace("SCALE = 1", "SCALE = 2"))
    assert done.returncode == 1 and "InputError: plug-in script.py has changed" in done.stderr
    assert "--out" not in done.stderr and "delete the folder to train again" in done.stderr


def test_definitions_are_what_a_class_needs_of_its_file():
    text = "import torch\nN = 2\nM = 3\ndef f():\n    return N\nclass A:\n    n = f()  # ours\nA.m = 1\nclass B: pass\n"
    assert " ".join(definitions(text, ["A"]).split()) == "N = 2 def f(): return N class A: n = f() A.m = 1"
    assert definitions(text, ["A", "C"]) == ""


NOTEBOOK = '''
import torch
from torch import nn as layers
from vitpos.encodings.base import PositionEncoding

SCALE = 0.5

def helper(x):
    return SCALE * x

class Parent(PositionEncoding):
    def __init__(self, geometry):
        super().__init__()

class Noted(Parent):
    """Does next to nothing."""
    def __init__(self, geometry, *, size: int = 3):
        super().__init__(geometry)
        self.weight = layers.Parameter(helper(torch.ones(size)))
'''


@pytest.fixture
def noted(monkeypatch):
    """A class of a module that has source but no file, as in a notebook."""
    module = ModuleType("a_notebook")
    monkeypatch.setitem(sys.modules, "a_notebook", module)
    monkeypatch.setitem(linecache.cache, "<cell 1>", (len(NOTEBOOK), None, NOTEBOOK.splitlines(True), "<cell 1>"))
    exec(compile(NOTEBOOK, "<cell 1>", "exec"), vars(module))
    return module.Noted


def test_the_source_of_a_class_without_a_file_stands_alone(noted):
    scope = {"__name__": "alone"}
    exec(standalone_source(noted), scope)
    made = scope["Noted"](Geometry(8, 1, 1, (2, 2)), size=4)
    assert made.weight.tolist() == [0.5] * 4 and isinstance(made, PositionEncoding)


def test_a_class_of_a_notebook_is_stored_in_the_run_and_imported_only_if_it_is_given(tmp_path, noted):
    results = vitpos.run(TINY, tmp_path / "out", encoding=noted, workers=1)
    assert [cell.encoding for cell, _ in results.trained] == ["Noted.py:Noted"]
    stored = tmp_path / "out/plugins/Noted.py"
    done = vitpos_in(tmp_path, "evaluate", "out", "--with", "accuracy")
    assert done.returncode == 2 and f"read it, then give --plugin {stored}" in done.stderr, done.stderr
    done = vitpos_in(tmp_path, "evaluate", "out", "--with", "accuracy", "--plugin", stored)
    assert done.returncode == 0, done.stderr


def test_a_class_without_source_runs_and_says_that_it_cannot_be_resumed(tmp_path):
    scope = {"Base": Learned, "__name__": "nowhere"}
    exec("class Lost(Base):\n    def __init__(self, geometry):\n        super().__init__(geometry)", scope)
    with pytest.warns(PluginWarning, match="Lost has no source"):
        results = vitpos.run(TINY, tmp_path / "out", encoding=scope["Lost"], workers=1)
    assert len(results.trained) == 1


def test_classes_become_specs_and_instances_are_refused():
    made = Experiment.load(TINY, {"encoding": [Learned, "rope"], "train": {"epochs": 2}}, seeds=[3])
    assert [cell.encoding for cell in made.cells] == ["learned", "rope"]
    assert {(cell.seed, cell.train.epochs) for cell in made.cells} == {(3, 2)}
    assert Experiment.from_definition(json.loads(json.dumps(made.definition))).cells == made.cells
    assert ENCODINGS.spec_of(Learned) == "learned"
    assert Experiment.load(TINY, {"encoding": partial(Learned, std=1)}).cells[0].encoding == "learned(std=1.0)"
    with pytest.raises(InputError, match="give the class or a spec"):
        Experiment.load(TINY, {"encoding": Learned(Geometry(8, 1, 1, (2, 2)))})
    with pytest.raises(InputError, match="did you mean 'encoding'"):
        Experiment.load(TINY, {"encodings": "learned"})


SLOPE = 5.0


def make_local(SLOPE):
    class Local(PositionEncoding):
        def __init__(self, geometry):
            super().__init__()
            self.slope = SLOPE

    return Local


def make_default(SLOPE):
    class Default(PositionEncoding):
        slope = SLOPE

    return Default


def test_two_classes_of_one_name_are_refused_in_one_run_and_accepted_one_after_the_other():
    first, second = make_local(1.0), make_local(2.0)
    for values in ({"encoding": [first, second]}, {"cells": [{"encoding": first}, {"encoding": second}]}):
        with (
            pytest.warns(PluginWarning, match="has no source"),
            pytest.raises(InputError, match=r"encoding spec 'Local\.py:Local'; give one another name"),
        ):
            Experiment.load(TINY | values)
    for one in (first, second):
        with pytest.warns(PluginWarning, match="has no source"):
            Experiment.load(TINY, {"encoding": [one, one]})
        assert ENCODINGS.load("Local.py:Local") is one


@pytest.mark.parametrize("make", [make_local, make_default])
def test_a_class_that_uses_variables_of_a_function_has_no_source_of_its_own(make):
    assert standalone_source(make(100.0)) is None

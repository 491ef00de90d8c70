"""``vitpos list`` in real processes."""

import json
import subprocess
import sys

import pytest

from tests.processes import vitpos
from vitpos.cli.descriptions import ATTACHES, explain
from vitpos.encodings import ENCODINGS
from vitpos.encodings._rotary import Rotary


def test_list_prints_the_definition_of_one_entry():
    done = vitpos("list", "evaluations", "shuffle")
    assert done.returncode == 0 and "consistent_correct:" in done.stdout
    assert "vitpos run mjp-ratio" in vitpos("list", "experiments", "mjp-ratio").stdout
    assert [entry["name"] for entry in json.loads(vitpos("list", "encodings", "rope", "--json").stdout)] == ["rope"]
    for wrong in (["evaluations", "shufle"], ["all", "shuffle"], ["experiments", "nothing"]):
        assert vitpos("list", *wrong).returncode == 2


@pytest.mark.parametrize("kind", ["encodings", "models", "data", "evaluations", "experiments"])
def test_list_answers_in_json_on_standard_output_alone(kind):
    done = vitpos("list", kind, "--json")
    entries = json.loads(done.stdout)
    assert done.stderr == "" and entries
    assert all({"name", "summary", "options"} <= set(entry) and entry["summary"] for entry in entries)
    assert all(entry["name"] in vitpos("list", kind).stdout for entry in entries[:1])


def test_parameters_are_counted_for_a_geometry():
    done = vitpos("list", "encodings", "--json", "--geometry", "dim=8,heads=2,depth=3,grid=4x5,num_prefix=1")
    found = {entry["name"]: entry["parameters"] for entry in json.loads(done.stdout)}
    assert found["learned"] == 4 * 5 * 8 and found["rope"] == 0


@pytest.mark.parametrize("geometry", ["dim=8,heads=3", "dim=0", "grid=14", "biases_prefix=1"])
def test_a_wrong_geometry_is_one_line(geometry):
    done = vitpos("list", "encodings", "--geometry", geometry)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and repr(geometry) in done.stderr


def test_every_hook_and_protocol_that_acts_on_a_model_has_a_description():
    acting = {"augment", "vectors", "update", "bias", "rotate", "token_bias", "mix_weights", "added_values"}
    assert acting <= set(ATTACHES)


def test_inherited_hooks_are_listed_as_often_as_they_act():
    for name in ENCODINGS:
        listed = set(ENCODINGS.describe(name).methods) & set(ATTACHES)
        assert listed == ENCODINGS[name]._hooks & set(ATTACHES), name

    class Mine(Rotary):
        """A user's rotary encoding."""

        def rotation(self, pos, layer, dtype):
            return lambda x: x

    assert [method for method in ENCODINGS.describe(Mine).methods if method in ATTACHES] == ["rotate"]


def test_listing_and_checking_need_no_torch():
    code = (
        "import sys, vitpos.cli.main, vitpos.cli.descriptions as l, vitpos.lab.experiment as e;"
        "[l.descriptions(k) for k in l.KINDS]; e.Experiment.load('mnist-jigsaw');"
        "sys.exit(any(m in sys.modules for m in ('torch', 'numpy', 'matplotlib')))"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_one_entry_is_explained_with_options_source_and_traits():
    text = explain("encodings", "learned")
    assert "source: Dosovitskiy" in text and "std" in text and "float = 0.02" in text
    assert "in the model: added to tokens" in text and "other grids: by resampling" in text
    assert "it has parameters" in text and "Args:" not in text

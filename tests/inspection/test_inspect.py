"""``inspect``: every encoding can be inspected, every figure drawn, and numbers need no matplotlib."""

import json
import subprocess
import sys

import pytest
import torch

from tests.inspection.tables import noise
from vitpos import plotting
from vitpos.data.dataset import load
from vitpos.errors import InputError
from vitpos.inspection.inspect import Inspection, Target, inspect, target_from_model
from vitpos.models import MODELS
from vitpos.report.inspection_page import json_numbers

SPECS = ["vit(patch=(7, 4), dim=16, depth=2, heads=2)", "minimal(patch=(7, 4), dim=16)"]


@pytest.mark.parametrize("encoding", ["none", "learned", "rope", "relative", "sape2", "cope", "cpe", "learned + mjp"])
@pytest.mark.parametrize("spec", [SPECS[0], pytest.param(SPECS[1], marks=pytest.mark.slow)])
def test_every_encoding_can_be_inspected_and_drawn(encoding, spec):
    data = load("mnist")
    model = MODELS.build(spec, data.shape, 10, encoding)
    target = target_from_model("name", model, data, encoding=encoding)
    inspection = Inspection(target, inspect(target, images=8))
    numbers = json.loads(json.dumps(json_numbers(inspection.numbers), allow_nan=False))
    assert numbers["grid"] == [4, 7] and len(numbers["model"]["probe_r2"]) == model.geometry.depth + 1
    assert ("table" in numbers) == ("learned" in encoding)
    assert "offsets" in numbers or encoding not in ("rope", "relative")
    figures = inspection.figures
    expected = {"position-by-layer", "attention", "mean-attention", "mean-logits", "attention-distance"}
    assert expected <= set(figures) and ("gates-0" in figures) == (encoding in ("sape2", "cope"))
    assert all(plotting.png(plotting.draw(figure.kind, figure.data)) for figure in figures.values())
    assert ("bias_content_correlation" in numbers["model"]) == (encoding in ("sape2", "cope"))


def test_attention_is_drawn_on_the_images_given():
    data = load("mnist")
    model = MODELS.build(SPECS[0], data.shape, 10, "learned")
    target = target_from_model("name", model, data, encoding="learned")
    *_, section = inspect(target, images=8, shown=data.sample_test(2))
    attention = {figure.name: figure.data for figure in section.figures}["attention"]
    assert attention["images"].shape == (2, 28, 28, 1) and attention["maps"].shape == (2, 3, 4, 7)
    assert attention["titles"] == ["rollout", "head 1", "head 2"]


def test_a_model_without_patches_is_rejected():
    data = load("mnist")
    with pytest.raises(InputError, match="without patches"):
        target_from_model("name", MODELS.build("cnn", data.shape, 10, "none"), data, encoding="none")


def test_windowed_models_have_bias_tables_but_are_not_run():
    data = load("mnist")
    model = MODELS.build("swin(patch=4, dim=8, depths=(1,), heads=(2,))", data.shape, 10, "none")
    target = target_from_model("name", model, data, encoding="none")
    assert list(target.biases) == ["layer 1"] and target.biases["layer 1"].shape == (2, 13, 13)
    assert target.model is None and "windowed" in target.metadata["skipped"]
    assert [section.name for section in inspect(target)] == ["offsets"]


def test_an_inspection_without_sections_has_a_reason():
    assert "--grid" in Inspection(Target("name", {"encodings": {"relative": ""}}), []).numbers["reason"]
    assert Inspection(Target("name", {}), [], "broken").numbers == {"name": "name", "reason": "broken"}


def test_the_numbers_of_a_model_and_a_table_need_no_matplotlib(tmp_path):
    torch.save(noise((4, 7), 8), tmp_path / "table.pt")
    code = f"""
import sys, torch
from vitpos.data.dataset import load
from vitpos.inspection.inspect import Target, inspect, target_from_model
from vitpos.models import MODELS
data = load("mnist")
model = MODELS.build({SPECS[0]!r}, data.shape, 10, "learned + relative(std=1.0)")
sections = inspect(target_from_model("name", model, data, encoding="learned"), images=8)
sections += inspect(Target("table", {{}}, table=torch.load({str(tmp_path / "table.pt")!r})))
print([section.name for section in sections], sum(len(section.figures) for section in sections) > 10)
print([name for name in sys.modules if name.split(".")[0] in ("matplotlib", "mpl_toolkits")])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["['table', 'offsets', 'model', 'table'] True", "[]"]

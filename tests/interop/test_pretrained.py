"""Models in a folder: a round trip bit for bit, a model card, and configurations from elsewhere that stay data."""

import json
import os
import re
import subprocess
import sys

import pytest
import torch

import vitpos
from vitpos import (
    MODELS,
    Geometry,
    InputError,
    PositionEncoding,
    RoPE,
    ViT,
    from_pretrained,
    push_to_hub,
    save_pretrained,
)
from vitpos.lab.inspection_targets import find_targets

PLUGIN = """
from pathlib import Path
from vitpos import PositionEncoding

Path(__file__).with_name("imported").touch()

class Mine(PositionEncoding):
    pass
"""


def small(encoding="learned + rope(base=10.0)", **options):
    sizes = {"patch": (4, 6), "dim": 32, "depth": 2, "heads": 2, "registers": 1}
    return ViT((3, 12, 24), 5, encoding, **(sizes | options))


def assert_same(model, other):
    assert list(model.state_dict()) == list(other.state_dict())
    for mine, theirs in zip(model.state_dict().values(), other.state_dict().values(), strict=True):
        assert mine.dtype == theirs.dtype and torch.equal(mine, theirs)


@pytest.mark.parametrize(
    ("model", "encoding"),
    [
        ("vit(patch=(4, 6), dim=32, depth=2, heads=2, pool='mean')", "learned + sape2"),
        ("vit(patch=4, dim=32, depth=1, heads=2, block='pre_norm(mlp=\\'swiglu\\')')", "rope_mixed(base=5.0)"),
        ("swin(window=(2, 3), patch=2, dim=16, depths=(1, 1), heads=(2, 4))", "learned"),
        ("minimal", "fourier(learnable=False)"),
        ("cnn(width=4)", "none"),
    ],
)
def test_a_saved_model_is_the_same_bit_for_bit(model, encoding, tmp_path):
    built = MODELS.build(model, (3, 12, 24), 5, encoding)
    loaded = from_pretrained(save_pretrained(built, tmp_path / "model"))
    assert_same(built, loaded)
    images = torch.randn(3, 3, 12, 24)
    with torch.no_grad():
        assert torch.equal(built.eval()(images), loaded(images))
    assert not loaded.training


def test_tables_of_another_grid_and_other_dtypes_are_kept(tmp_path):
    resized = small().resized((5, 3)).to(torch.bfloat16)
    loaded = from_pretrained(save_pretrained(resized, tmp_path))
    assert_same(resized, loaded)
    assert loaded.geometry.grid == (5, 3) and loaded.train_grid == (3, 4)


def test_a_converted_and_then_resized_model_keeps_its_grid(tmp_path):
    def same(model, name):
        loaded = from_pretrained(save_pretrained(model, tmp_path / name))
        assert (loaded.geometry, loaded.train_grid) == (model.geometry, model.train_grid)
        assert_same(model, loaded)

    converted = small(train_grid=(2, 2))
    assert converted.geometry.grid == (3, 4)
    same(converted, "converted")
    same(converted.resized((2, 2)), "to the grid of training")
    same(converted.resized((5, 6)), "resized")
    same(small("rope", train_grid=(2, 2)).resized((2, 2)), "without a table")


def test_a_model_whose_grid_was_changed_by_hand_is_not_saved(tmp_path):
    model = small("rope")
    model.train_grid = (9, 9)
    refused("the model has another grid than the one that", lambda: save_pretrained(model, tmp_path / "model"))


def test_load_evaluate_and_convert_take_the_folder_of_a_saved_model(tmp_path):
    model = ViT((1, 28, 28), 10, "learned + rope", patch=7, dim=32, depth=2, heads=2).eval()
    folder, images = save_pretrained(model, tmp_path / "model"), torch.randn(2, 1, 28, 28)
    with torch.no_grad():
        assert torch.equal(vitpos.load(folder)(images), model(images))
    refused("whose encoding was trained", lambda: vitpos.load(folder, encoding="rope"))
    results = vitpos.evaluate(folder, "mnist(limit=20, test_limit=20)", "accuracy")
    assert set(results) == {"accuracy"}
    converted, _ = vitpos.convert(folder, grid=(2, 2), out=tmp_path / "converted.safetensors")
    assert converted.geometry.grid == (2, 2)
    with torch.no_grad():
        smaller = torch.randn(2, 1, 14, 14)
        assert torch.equal(vitpos.load(tmp_path / "converted.safetensors").cpu()(smaller), converted.cpu()(smaller))
    again, _ = vitpos.convert(save_pretrained(model.resized((2, 2)), tmp_path / "resized"), patch=14)
    assert again.patch == (14, 14)


def test_inspect_runs_the_model_in_a_folder_on_given_data(tmp_path):
    folder = save_pretrained(ViT((1, 28, 28), 10, "learned", patch=7, dim=32, depth=2, heads=2), tmp_path / "model")
    ((_, load_target),) = find_targets(folder, None, None)
    assert load_target().table.shape == (4, 4, 32) and load_target().model is None
    ((_, load_target),) = find_targets(folder, None, "mnist(limit=20, test_limit=20)")
    assert load_target().metadata["format"] == "vitpos"


def test_a_class_is_stored_by_its_spec(tmp_path):
    save_pretrained(small(RoPE), tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["encoding"] == "rope"


def test_the_model_card_names_encoding_paper_grid_and_parameters(tmp_path):
    model = small()
    card = (save_pretrained(model, tmp_path) / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: vitpos\n")
    for text in (
        "learned + rope(base=10.0)",
        "Heo et al., ECCV 2024",
        "3×4 (rows × columns)",
        "torch.randn(1, 3, 12, 24)",
    ):
        assert text in card
    assert f"{sum(parameter.numel() for parameter in model.parameters()):,}" in card


def refused(message, call, error=InputError):
    with pytest.raises(error, match=re.escape(message)) as caught:
        call()
    assert "\n" not in str(caught.value)


class Local(PositionEncoding):
    pass


def test_a_model_that_its_configuration_does_not_describe_is_not_saved(tmp_path):
    changed = small()
    changed.encoding = RoPE(changed.geometry, base=50.0)
    refused("a part of it was changed after it was built", lambda: save_pretrained(changed, tmp_path / "a"))
    scaled = small("rope")
    scaled.encoding = scaled.encoding.ntk_scaled(2.0)
    refused("has other outputs than the one that", lambda: save_pretrained(scaled, tmp_path / "b"))
    instance = small(RoPE(Geometry(32, 2, 2, (3, 4))))
    refused("build it with a spec", lambda: save_pretrained(instance, tmp_path / "c"))
    refused("needs a model of vitpos, not a Linear", lambda: save_pretrained(torch.nn.Linear(2, 2), tmp_path / "d"))
    assert not list(tmp_path.iterdir())


def test_code_that_a_configuration_names_is_imported_only_if_trusted(tmp_path):
    folder = save_pretrained(small("none"), tmp_path / "model")
    plugin = tmp_path / "mine.py"
    plugin.write_text(PLUGIN)
    edit(folder, encoding=f"{plugin}:Mine")
    refused("if you trust it, use --trust, or trust=True in Python", lambda: from_pretrained(folder))
    edit(folder, encoding="none", model=f"vit(patch=(4, 6), dim=32, depth=2, heads=2, head='{plugin}:Mine')")
    refused("trust=True in Python", lambda: from_pretrained(folder))
    assert not (tmp_path / "imported").exists()
    edit(folder, encoding=f"{plugin}:Mine", model="vit(patch=(4, 6), dim=32, depth=2, heads=2, registers=1)")
    assert type(from_pretrained(folder, trust=True).encoding).__name__ == "Mine"


def edit(folder, **values):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"model": "vit(patch=1, dim=4096, depth=64, heads=2)"}, "is larger than the stored tensors"),
        (
            {"image_shape": [3, 30000, 30000], "model": "vit(patch=1, dim=32, heads=2)"},
            "is larger than the stored tensors",
        ),
        ({"encoding": "rope", "image_shape": [3, 20000, 24000]}, "is (1, 3, 4, 32) and should be missing"),
        ({"image_shape": [3, 1e9, 4]}, "are no sizes of a model"),
        ({"image_shape": [3, True, 4]}, "are no sizes of a model"),
        ({"num_classes": -1}, "are no sizes of a model"),
        ({"num_classes": 7}, "'head.weight' is (5, 32) and should be (7, 32)"),
        ({"grid": [20000, 30000]}, "is larger than the stored tensors"),
        ({"encoding": "none"}, "and should be missing"),
        ({"encoding": 3}, "have to be specs"),
        ({"encoding": "unheard_of"}, "unheard_of"),
        ({"library": "timm"}, "is not the configuration of a model of vitpos"),
        ({"format": 99}, "is not the configuration of a model of vitpos"),
    ],
)
def test_a_configuration_that_does_not_fit_the_tensors_is_refused(values, message, tmp_path):
    folder = save_pretrained(small("learned"), tmp_path)
    edit(folder, **values)
    refused(message, lambda: from_pretrained(folder))


def test_an_image_size_that_no_tensor_bounds_is_refused(tmp_path):
    folder = save_pretrained(small("rope"), tmp_path)
    edit(folder, image_shape=[3, 20000, 24000])
    refused("states images of 20000×24000 pixels", lambda: from_pretrained(folder))
    edit(folder, image_shape=[3, 12, 24], grid=[20000, 20000])
    refused("too large for an untrusted file", lambda: from_pretrained(folder))
    edit(folder, grid=[200, 200])
    assert from_pretrained(folder, trust=True).geometry.grid == (200, 200)


def test_damaged_and_missing_files_are_refused(tmp_path):
    folder = save_pretrained(small("learned"), tmp_path / "model")
    refused("nor a repository such as user/name", lambda: from_pretrained(tmp_path / "nothing"))
    (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:-100])
    refused("is damaged or truncated", lambda: from_pretrained(folder))
    (folder / "config.json").write_text("[]")
    refused("is not a JSON object", lambda: from_pretrained(folder))


def test_an_unreachable_hub_is_an_error_of_one_line(tmp_path):
    script = (
        "import vitpos\n"
        "for call in (lambda: vitpos.from_pretrained('user/name'), lambda: vitpos.push_to_hub("
        "vitpos.ViT((1, 8, 12), 2, 'rope', dim=16, depth=1, heads=2), 'user/name', token='x')):\n"
        "    try: call()\n"
        "    except (vitpos.InputError, vitpos.RunError) as error: print(error)\n"
    )
    offline = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", script], env=os.environ | offline, capture_output=True, text=True)
    lines = done.stdout.splitlines()
    assert len(lines) == 2 and "unset it" in lines[0] and "was not uploaded" in lines[1], done.stderr


def test_a_missing_package_is_named_with_its_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    refused("pip install huggingface_hub", lambda: from_pretrained("user/name"))
    refused("pip install huggingface_hub", lambda: push_to_hub(small(), "user/name"))

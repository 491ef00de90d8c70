"""`vitpos.convert`: from any checkpoint to any format, each step with its report, and back."""

import json
from pathlib import Path

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

import vitpos
from tests.interop.test_attach import randomize
from tests.interop.test_load import SMALL, huggingface_model
from tests.lab import foreign
from tests.references import peer
from vitpos import InputError
from vitpos.data.dataset import load as load_data
from vitpos.evaluations.context import EvalContext
from vitpos.files import read_tensors, write_tensors
from vitpos.interop.model_spec import ModelSpec
from vitpos.interop.preprocessing import read_huggingface
from vitpos.interop.source_model import SourceModel
from vitpos.interop.untrusted_files import metadata_or_empty
from vitpos.lab.compare_modes import MODES
from vitpos.lab.conversion_output import resized_data, write_model
from vitpos.lab.drift import predict
from vitpos.lab.heal import Healing
from vitpos.lab.inspection_targets import find_targets
from vitpos.lab.open_models import open_checkpoint
from vitpos.models.vit import ViT

TEXT = """
data = "stripes(count=40)"
model = "vit(patch=(2, 4), dim=16, depth=1, heads=2, pool='mean')"
encoding = ["learned", "rope", "learned + rope"]
evaluations = ["accuracy"]
train.epochs = 1
"""


@pytest.fixture(scope="module")
def timm():
    return peer("timm")


@pytest.fixture(scope="module")
def cells(tmp_path_factory):
    """The folders of three small trained models, by encoding."""
    folder = tmp_path_factory.mktemp("run")
    (folder / "three.toml").write_text(TEXT)
    vitpos.run(str(folder / "three.toml"), folder / "out", workers=1)
    found = (folder / "out" / "cells").iterdir()
    return {json.loads((path / "cell.json").read_text())["encoding"]: path for path in found}


def images(shape, seed=0):
    return torch.randn(2, *shape, generator=torch.Generator().manual_seed(seed))


def numbers(reports, step):
    return next(report for report in reports if report.step == step).numbers


def same_weights(a, b):
    return a.keys() == b.keys() and all(torch.equal(tensor, b[name]) for name, tensor in a.items())


# Our format


@pytest.mark.parametrize("encoding", ["learned", "rope", "learned + rope"])
def test_a_converted_file_is_read_by_load_evaluate_inspect_and_as_initial_weights(cells, tmp_path, encoding):
    out = tmp_path / "new.safetensors"
    model, reports = vitpos.convert(cells[encoding], grid=(6, 3), out=out, data="stripes(count=40)")
    again = vitpos.load(out)
    assert torch.equal(model(images((1, 12, 12))), again(images((1, 12, 12)))) and not again.training
    assert numbers(reports, "format")["output_difference"] == 0
    assert numbers(reports, "grid")["tensors_changed"] == ("learned" in encoding)
    result = vitpos.evaluate(out, evaluations="accuracy")["accuracy"]  # on images of 12×12
    assert result.numbers["accuracy"] == pytest.approx(
        vitpos.evaluate(again, "stripes(count=40) + resize(size=(12, 12))")["accuracy"].numbers["accuracy"]
    )
    ((_, load_target),) = find_targets(out)
    assert load_target().model.geometry.grid == (6, 3)
    settings = {"data": "stripes(count=40) + resize(size=(12, 12))", "encoding": encoding, "evaluations": []}
    new = {"model": "vit(patch=(2, 4), dim=16, depth=1, heads=2, pool='mean')"} | settings
    run = vitpos.run({**new, "train": {"epochs": 0, "weights": str(out)}}, tmp_path / "more", workers=1)
    (folder,) = (run.folder.path / "cells").iterdir()
    assert same_weights(vitpos.load(folder).state_dict(), model.state_dict())


def test_nothing_to_change_gives_the_same_weights_bit_for_bit(cells, tmp_path):
    vitpos.convert(cells["learned"], out=tmp_path / "a.safetensors")
    vitpos.convert(tmp_path / "a.safetensors", out=tmp_path / "b.safetensors")
    original = load_file(cells["learned"] / "weights.safetensors")
    for name in ("a", "b"):
        assert same_weights(original, load_file(tmp_path / f"{name}.safetensors"))


def test_there_and_back_to_the_same_grid_keeps_coordinates_exactly(cells, tmp_path):
    vitpos.convert(cells["rope"], grid=(7, 5), out=tmp_path / "a.safetensors")
    assert "train_grid=(4, 4)" in json.loads(metadata_or_empty(tmp_path / "a.safetensors")["cell"])["model"]
    model, _ = vitpos.convert(tmp_path / "a.safetensors", grid=(4, 4))
    original = vitpos.load(cells["rope"])
    assert torch.equal(model(images((1, 8, 16))), original(images((1, 8, 16))))


def test_a_model_of_timm_becomes_a_file_of_ours(timm, tmp_path):
    theirs = randomize(timm.create_model("vit_small_patch16_224", img_size=32, **SMALL), dtype=torch.float32)
    out = tmp_path / "ours.safetensors"
    vitpos.convert(theirs, grid=(2, 3), out=out)
    again = vitpos.load(out)
    assert again.geometry.grid == (2, 3) and again(images((3, 32, 48))).shape == (2, 5)
    theirs.set_input_size(img_size=(32, 48))
    assert torch.allclose(again(images((3, 32, 48))), theirs(images((3, 32, 48))), atol=1e-5)
    with pytest.raises(InputError, match="has no data of its own; give data"):
        vitpos.evaluate(out)
    ((_, load_target),) = find_targets(out)
    assert load_target().table.shape == (2, 3, 32) and load_target().model is None


def test_a_converted_model_keeps_its_classes_and_preprocessing(timm, tmp_path):
    arguments = {**SMALL, "img_size": 32, "num_classes": 3}
    theirs = timm.create_model("vit_small_patch16_224", **arguments).eval()
    stated = {"mean": (0.4, 0.5, 0.6), "std": (0.2, 0.3, 0.4), "crop_pct": 0.8, "interpolation": "bilinear"}
    theirs.pretrained_cfg = {**theirs.pretrained_cfg, **stated, "input_size": (3, 32, 32), "label_names": list("abc")}
    timm.models.save_for_hf(theirs, str(tmp_path / "theirs"), model_args=arguments, safe_serialization=True)
    folder = foreign.image_folder(tmp_path / "images", ["c", "a"], size=(32, 32))
    data = f"image_folder(path={str(folder)!r}, size=32)"
    vitpos.convert(tmp_path / "theirs", out=tmp_path / "ours.safetensors")
    vitpos.convert(tmp_path / "ours.safetensors", out=tmp_path / "again.safetensors")
    theirs, *ours = (
        open_checkpoint(tmp_path / name, data) for name in ("theirs", "ours.safetensors", "again.safetensors")
    )
    for one in ours:
        assert one.cell.data == theirs.cell.data and "test_crop=0.8" in one.cell.data
        assert (one.data.mean, one.data.std) == (theirs.data.mean, theirs.data.std) == (stated["mean"], stated["std"])
        assert one.data.classes == ("a", "b", "c") and one.data.test.labels.tolist() == [0] * 3 + [2] * 3
        x = one.data.normalize(one.data.test.images[:])
        with torch.no_grad():
            assert torch.equal(one.model(x), theirs.model(x))
    ((_, load_target),) = find_targets(tmp_path / "ours.safetensors", data=data)
    assert load_target().data.mean == stated["mean"]
    for to in ("timm", "hf"):
        _, reports = vitpos.convert(tmp_path / "theirs", grid=(5, 3), to=to, out=tmp_path / to, data=data)
        other = open_checkpoint(tmp_path / to, data)
        assert other.data.classes == ("a", "b", "c") and other.data.mean == stated["mean"]
        accuracy = EvalContext(theirs.model, theirs.data).evaluate("accuracy").numbers["accuracy"]
        assert numbers(reports, "grid")["accuracy_before"] == accuracy  # images of the size of the model need no crop
    unknown = foreign.image_folder(tmp_path / "unknown", ["c", "x"], size=(32, 32))
    _, reports = vitpos.convert(tmp_path / "theirs", grid=(5, 3), data=f"image_folder(path={str(unknown)!r})")
    assert "accuracy_before" not in numbers(reports, "grid") and "agreement" in numbers(reports, "grid")


def test_preprocessing_is_written_for_hugging_face(timm, tmp_path):
    theirs = timm.create_model("vit_small_patch16_224", img_size=32, **SMALL)
    theirs.pretrained_cfg = {
        "mean": (0.4, 0.5, 0.6),
        "std": (0.2, 0.3, 0.4),
        "crop_pct": 0.8,
        "interpolation": "bilinear",
    }
    vitpos.convert(theirs, to="hf", out=tmp_path / "hf")
    again = read_huggingface(tmp_path / "hf")
    assert (again.mean, again.std, again.interpolation) == ((0.4, 0.5, 0.6), (0.2, 0.3, 0.4), "bilinear")
    assert (again.size, again.crop, again.keep_aspect) == ((32, 32), 0.8, True)
    transformers = peer("transformers")
    processor = transformers.AutoImageProcessor.from_pretrained(tmp_path / "hf", use_fast=False)
    assert processor.size["shortest_edge"] == 40 and processor.crop_size["height"] == 32


def test_the_data_of_a_converted_model_have_its_image_size():
    assert resized_data("mnist", (1, 42, 56)) == "mnist + resize(size=(42, 56))"
    assert resized_data("mnist(limit=9) + resize(size=7)", (1, 8, 8)) == "mnist(limit=9) + resize(size=(8, 8))"
    assert resized_data("image_folder(path='x', size=224)", (3, 96, 64)) == "image_folder(path='x', size=(96, 64))"


# Other formats


TIMM = ["vit_small_patch16_224", "vit_small_patch16_dinov3", "deit3_small_patch16_224", "swin_tiny_patch4_window7_224"]


@pytest.mark.parametrize("name", TIMM)
@pytest.mark.parametrize("grid", [None, (3, 2)])
def test_timm_loads_a_converted_folder_with_the_same_outputs(timm, tmp_path, name, grid):
    sizes = {"img_size": 56, "embed_dim": 24, "depths": (2, 1), "num_heads": (2, 4)} if "swin" in name else SMALL
    sizes = {"img_size": 64} | sizes | {"num_classes": 5}
    theirs = randomize(timm.create_model(name, **sizes), dtype=torch.float32)
    grid = (28, 14) if grid and "swin" in name else grid
    model, reports = vitpos.convert(theirs, grid=grid, to="timm", out=tmp_path / "out")
    again = timm.create_model(f"local-dir:{tmp_path / 'out'}", pretrained=True).eval()
    _, height, width = again.pretrained_cfg["input_size"]
    x = images((3, height, width))
    assert torch.allclose(again(x), model(x), atol=1e-5) and numbers(reports, "format")["output_difference"] < 1e-5
    if grid is None:
        assert same_weights(load_file(tmp_path / "out" / "model.safetensors"), theirs.state_dict())
    assert torch.allclose(vitpos.load(tmp_path / "out")(x), model(x), atol=1e-6)


@pytest.mark.parametrize("name", TIMM)
def test_by_way_of_our_format_a_model_of_timm_comes_back_bit_for_bit(timm, tmp_path, name):
    sizes = {"img_size": 56, "embed_dim": 24, "depths": (2, 1), "num_heads": (2, 4)} if "swin" in name else SMALL
    theirs = randomize(timm.create_model(name, **{"img_size": 64} | sizes | {"num_classes": 5}), dtype=torch.float32)
    vitpos.convert(theirs, out=tmp_path / "ours.safetensors")
    vitpos.convert(tmp_path / "ours.safetensors", to="timm", out=tmp_path / "back")
    assert same_weights(load_file(tmp_path / "back" / "model.safetensors"), theirs.state_dict())


@pytest.mark.parametrize("encoding", ["rope", "learned + rope(base=50.0)", "none"])
def test_a_model_of_timm_with_another_encoding_is_a_model_of_timm(timm, tmp_path, encoding):
    theirs = randomize(timm.create_model("vit_small_patch16_224", img_size=64, **SMALL), dtype=torch.float32)
    model, _ = vitpos.convert(theirs, encoding=encoding, to="timm", out=tmp_path / "out")
    again = timm.create_model(f"local-dir:{tmp_path / 'out'}", pretrained=True).eval()
    assert torch.allclose(again(images((3, 64, 64))), model(images((3, 64, 64))), atol=1e-5)


def test_a_single_file_with_timms_names_states_its_architecture(timm, tmp_path):
    theirs = randomize(timm.create_model("vit_small_patch16_224", img_size=64, **SMALL), dtype=torch.float32)
    model, _ = vitpos.convert(theirs, patch=8, to="timm", out=tmp_path / "p8.safetensors")
    again = vitpos.load(tmp_path / "p8.safetensors")
    assert again.patch == (8, 8) and torch.equal(again(images((3, 64, 64))), model(images((3, 64, 64))))


@pytest.mark.parametrize("encoding", ["learned", "rope"])
def test_a_model_of_ours_becomes_one_of_timm(timm, cells, tmp_path, encoding):
    model, reports = vitpos.convert(cells[encoding], grid=(4, 6), to="timm", out=tmp_path / "out")
    again = timm.create_model(f"local-dir:{tmp_path / 'out'}", pretrained=True).eval()
    assert torch.allclose(again(images((1, 8, 24))), model(images((1, 8, 24))), atol=1e-5)
    assert numbers(reports, "format")["output_difference"] < 1e-5


def ours_of(block, encoding="learned"):
    """A model that is not from timm, with other parts."""
    model = f"vit(patch=16, dim=48, depth=2, heads=3, block={block!r})"
    spec = ModelSpec(model, encoding, (3, 64, 64), 5)
    return SourceModel(randomize(spec.build(), dtype=torch.float32), spec)


@pytest.mark.parametrize("mlp", ["gelu", "gelu_tanh", "quick_gelu"])
def test_the_activation_of_a_model_of_ours_gets_into_the_arguments_of_timm(timm, tmp_path, mlp):
    source = ours_of(f"pre_norm(mlp={mlp!r})")
    write_model(source, tmp_path / "out", "timm")
    again = timm.create_model(f"local-dir:{tmp_path / 'out'}", pretrained=True).eval()
    assert torch.allclose(again(images((3, 64, 64))), source.model(images((3, 64, 64))), atol=1e-5)
    loaded = vitpos.load(tmp_path / "out")
    assert torch.allclose(loaded(images((3, 64, 64))), source.model(images((3, 64, 64))), atol=1e-5)


@pytest.mark.parametrize(
    ("block", "encoding", "message"),
    [
        (
            "pre_norm(mlp='swiglu')",
            "learned",
            "has the MLP gelu or gelu_tanh or quick_gelu, not swiglu; use the format 'vitpos'",
        ),
        ("pre_norm(mlp='quick_gelu')", "rope", "has the MLP gelu, not quick_gelu; use the format 'vitpos'"),
        ("pre_norm(eps=1e-05)", "learned", "has norms with eps=1e-06, not 1e-05; use the format 'vitpos'"),
        ("pre_norm(eps=1e-05)", "rope", "has norms with eps=1e-06, not 1e-05; use the format 'vitpos'"),
    ],
)
def test_parts_that_timm_lacks_are_named(timm, tmp_path, block, encoding, message):
    with pytest.raises(InputError, match=message):
        write_model(ours_of(block, encoding), tmp_path / "out", "timm")
    assert not list(tmp_path.iterdir())


HF = [
    ("vit", "ViTConfig", "ViTForImageClassification", {"image_size": 64}, (2, 8)),
    ("dinov2", "Dinov2Config", "Dinov2ForImageClassification", {"image_size": 64}, (6, 6)),
    ("dinov3_vit", "DINOv3ViTConfig", "DINOv3ViTModel", {"image_size": 64}, (3, 5)),
]  # fmt: skip


@pytest.mark.parametrize(("file", "config", "name", "options", "grid"), HF)
def test_hugging_face_loads_a_converted_folder_with_the_same_outputs(tmp_path, file, config, name, options, grid):
    theirs = randomize(huggingface_model(file, config, name, options), dtype=torch.float32)
    theirs.save_pretrained(tmp_path / "before")
    vitpos.convert(tmp_path / "before", to="hf", out=tmp_path / "same")
    stored, written = (load_file(tmp_path / one / "model.safetensors") for one in ("before", "same"))
    assert same_weights(stored, written)
    model, reports = vitpos.convert(f"hf:{tmp_path / 'before'}", grid=grid, to="hf", out=tmp_path / "out")
    again = type(theirs).from_pretrained(tmp_path / "out").eval()
    x = images((3, 16 * grid[0], 16 * grid[1]))
    with torch.no_grad():
        output = again(x)
        found = output.logits if hasattr(output, "logits") else output.pooler_output
    assert torch.allclose(found, model(x), atol=1e-5) and numbers(reports, "format")["output_difference"] < 1e-5
    assert torch.allclose(vitpos.load(tmp_path / "out")(x), model(x), atol=1e-6)


def test_a_model_of_timm_becomes_one_of_hugging_face_and_back(timm, tmp_path):
    theirs = randomize(timm.create_model("vit_small_patch16_224", img_size=64, **SMALL), dtype=torch.float32)
    vitpos.convert(theirs, to="hf", out=tmp_path / "hf")
    vitpos.convert(f"hf:{tmp_path / 'hf'}", to="timm", out=tmp_path / "timm")
    assert same_weights(load_file(tmp_path / "timm" / "model.safetensors"), theirs.state_dict())


def test_what_a_library_would_compute_otherwise_is_refused_and_nothing_is_written(timm, tmp_path, cells):
    with pytest.raises(
        InputError, match=r"would have other outputs \(difference .* is allowed\); try coords 'rebuild'"
    ):
        theirs = randomize(timm.create_model("vit_small_patch16_rope_224", img_size=64, **SMALL), dtype=torch.float32)
        vitpos.convert(theirs, grid=(8, 8), coords="interpolate", to="timm", out=tmp_path / "out")
    with pytest.raises(InputError, match=r"timm has no counterpart of vitpos' 'encoding|does not take this model"):
        vitpos.convert(cells["learned"], encoding="cpe", to="timm", out=tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_arguments_in_a_file_from_elsewhere_are_checked_before_a_model_is_built(timm, tmp_path):
    theirs = timm.create_model("test_vit", num_classes=5)
    for given, message in (
        ({"depth": 10**6}, "the argument depth=1000000, which vitpos.load does not use"),
        ({"embed_dim": 10**9}, "the argument embed_dim=1000000000, which vitpos.load does not use"),
        ({"embed_dim": 2**16}, "larger than the stored tensors"),
        ({"act_layer": "os.system"}, "the argument act_layer=os.system, which vitpos.load does not use"),
        ({"block_fn": "os.system"}, "the argument block_fn=os.system, which vitpos.load does not use"),
        ({"img_size": [64] * 100}, "the argument img_size="),
        ({"num_heads": [[[1]]]}, "the argument num_heads="),
    ):
        about = {"architecture": "test_vit", "model_args": json.dumps(given)}
        save_file(theirs.state_dict(), tmp_path / "x.safetensors", about)
        with pytest.raises(InputError, match=message):
            vitpos.load(tmp_path / "x.safetensors")
    about = {"architecture": "test_vit", "model_args": json.dumps({"drop_path_rate": 0.1, "img_size": 160})}
    save_file(theirs.state_dict(), tmp_path / "x.safetensors", about)
    assert vitpos.load(tmp_path / "x.safetensors").geometry.grid == (10, 10)


def test_a_weights_file_from_elsewhere_cannot_ask_for_a_huge_model(cells, tmp_path):
    vitpos.convert(cells["rope"], grid=(8, 8), out=tmp_path / "a.safetensors")
    tensors, about = read_tensors(tmp_path / "a.safetensors")
    cell = json.loads(about["cell"]) | {"data": ""}
    for changed in (
        {"image_shape": [1, 30000, 30000], "encoding": "learned"},
        {"image_shape": [1, 10**9, 8]},
        {"image_shape": "large"},
        {"model": "vit(patch=(2, 4), dim=16, depth=1, heads=2, train_grid=(4000, 4000))", "encoding": "learned"},
    ):
        write_tensors(tmp_path / "b.safetensors", tensors, {"cell": json.dumps(cell | changed)})
        with pytest.raises((InputError, vitpos.RunError), match=r"larger than the stored|is damaged|too large"):
            vitpos.load(tmp_path / "b.safetensors")


# Reports of steps


def test_all_modes_are_compared_and_the_one_with_the_least_drift_is_used(cells):
    model, reports = vitpos.convert(cells["learned"], grid=(6, 5), mode="all", data="stripes(count=40)")
    compared = {
        report.change: report.numbers for report in reports if report.step == "mode" and "norm_ratio" in report.numbers
    }
    assert set(compared) == set(MODES)
    (chosen,) = [report for report in reports if report.change.startswith("recommended")]
    assert chosen.numbers["kl"] == min(one["kl"] for one in compared.values())
    best = min(compared, key=lambda name: compared[name]["kl"])
    expected, _ = vitpos.convert(cells["learned"], grid=(6, 5), mode=best)
    assert same_weights(model.state_dict(), expected.state_dict())
    assert compared["bicubic-norm"]["norm_ratio"] > compared["bicubic"]["norm_ratio"]


def test_coordinates_are_compared_too(cells):
    _, reports = vitpos.convert(cells["rope"], grid=(6, 6), mode="all", data="stripes(count=40)")
    compared = [report.change for report in reports if "round_trip" in report.numbers]
    assert [text.rpartition(" ")[2] for text in compared] == ["interpolate", "rebuild", "ntk"]


def test_rebuilt_coordinates_on_the_same_grid_are_a_change_with_its_difference(cells, tmp_path):
    vitpos.convert(cells["rope"], grid=(8, 8), out=tmp_path / "a.safetensors")
    model, reports = vitpos.convert(tmp_path / "a.safetensors", grid=(8, 8), coords="rebuild")
    assert model.train_grid == (8, 8) and numbers(reports, "grid")["output_difference"] > 1e-8
    assert reports[0].change == "grid 8x8 → 8x8, coordinates: rebuild"
    _, reports = vitpos.convert(tmp_path / "a.safetensors", grid=(8, 8))
    assert reports[0].change == "grid 8x8 as before"


def test_modes_are_compared_for_a_model_that_was_converted_before(cells, tmp_path):
    options = {"encoding": "learned + sape2", "out": tmp_path / "a.safetensors"}
    vitpos.convert(cells["learned"], **options)
    vitpos.convert(tmp_path / "a.safetensors", grid=(8, 6), out=tmp_path / "b.safetensors")
    model, reports = vitpos.convert(tmp_path / "b.safetensors", grid=(5, 5), mode="all")
    assert model.train_grid == (4, 4)
    assert len([report for report in reports if report.numbers.get("round_trip", 0) > 0]) == len(MODES)


def test_modes_are_compared_for_stored_tables_only(cells, timm):
    theirs = randomize(timm.create_model("vit_small_patch16_rope_mixed_224", img_size=64, **SMALL), dtype=torch.float32)
    _, reports = vitpos.convert(theirs, grid=(3, 5), mode="all", coords="rebuild")
    assert [report.change for report in reports if "round_trip" in report.numbers] == ["coordinates: rebuild"]
    assert not any("tables" in report.change or MODES[0] in report.change for report in reports)
    sizes = {"img_size": 56, "embed_dim": 24, "depths": (2, 1), "num_heads": (2, 4), "num_classes": 5}
    swin = randomize(timm.create_model("swin_tiny_patch4_window7_224", **sizes), dtype=torch.float32)
    _, reports = vitpos.convert(swin, grid=(18, 12), window=6, mode="all")
    assert len([report for report in reports if report.numbers.get("round_trip", 0) > 0.01]) == len(MODES)


def test_drift_is_zero_if_nothing_changes(cells):
    _, reports = vitpos.convert(cells["learned"], grid=(4, 4), data="stripes(count=40)")
    found = numbers(reports, "grid")
    assert found["agreement"] == 1 and found["kl"] == pytest.approx(0, abs=1e-7) and found["tensors_changed"] == 0


def test_images_of_files_are_read_as_test_images(cells, tmp_path):
    """The same model has the same predictions twice: test images are neither cropped at random nor mirrored."""
    generator = torch.Generator().manual_seed(0)
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for number in range(10):
            pixels = torch.randint(256, (20, 30, 3), generator=generator, dtype=torch.uint8)
            Image.fromarray(pixels.numpy()).save(tmp_path / name / f"{number}.png")
    data = f"image_folder(path={str(tmp_path)!r}, size=(16, 16))"
    model, reports = vitpos.convert(cells["learned"], grid=(4, 4), data=data)
    logits = [predict(model, load_data(data), (1, 8, 16)) for _ in range(2)]
    assert torch.equal(*logits) and len(logits[0]) == 4
    assert numbers(reports, "grid")["agreement"] == 1 and numbers(reports, "grid")["kl"] == 0


def test_the_given_model_does_not_change(timm):
    theirs = randomize(timm.create_model("vit_small_patch16_224", img_size=32, **SMALL), dtype=torch.float32)
    before = {name: tensor.clone() for name, tensor in theirs.state_dict().items()}
    vitpos.convert(theirs, grid=(3, 3), patch=8, encoding="rope")
    assert same_weights(before, theirs.state_dict())


def test_reports_are_written_as_json(cells):
    _, reports = vitpos.convert(cells["rope"], grid=(5, 4), mode="all")
    text = json.dumps([report.to_json() for report in reports])
    assert "NaN" not in text and json.loads(text)[0]["step"] == "mode"


def test_a_constant_that_the_projection_cannot_take_is_reported(timm):
    theirs = timm.create_model("vit_base_patch16_clip_224", img_size=64, **SMALL)
    _, reports = vitpos.convert(theirs, encoding="rope")
    assert "the mean of the removed vectors is lost" in reports[0].note
    _, reports = vitpos.convert(theirs, encoding="learned(prefix_embed=True) + rope")
    assert reports[0].change.startswith("encoding learned(prefix_embed=True) →") and "lost:" not in reports[0].note
    assert "random weights" not in reports[0].note
    _, reports = vitpos.convert(theirs, encoding="learned + rope")
    assert "learned starts with random weights; learned(prefix_embed=True) in its place" in reports[0].note
    plain = timm.create_model("vit_small_patch16_224", img_size=64, **SMALL)
    assert "lost:" not in vitpos.convert(plain, encoding="rope")[1][0].note


# Files


def test_the_input_and_other_files_are_never_overwritten(cells, tmp_path):
    weights = cells["learned"] / "weights.safetensors"
    before = weights.read_bytes()
    (tmp_path / "link.safetensors").symlink_to(weights)
    (tmp_path / "gone.safetensors").symlink_to(tmp_path / "nowhere")
    for out in (weights, tmp_path / "link.safetensors", tmp_path / "gone.safetensors"):
        with pytest.raises(InputError, match="already exists; give a new name"):
            vitpos.convert(weights, grid=(5, 5), out=out)
    assert weights.read_bytes() == before and {path.name for path in tmp_path.iterdir()} == {
        "link.safetensors",
        "gone.safetensors",
    }


def onnx_session(path):
    return peer("onnxruntime").InferenceSession(str(path), providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("options", [{}, {"dynamic_size": True}, {"positions_as_inputs": True}])
def test_onnx_has_the_outputs_of_the_converted_model(cells, tmp_path, options):
    peer("onnxscript")
    out = tmp_path / "a.onnx"
    model, reports = vitpos.convert(cells["learned"], grid=(3, 5), to="onnx", out=out, **options)
    report = reports[-1]
    assert 0 <= report.numbers["output_difference"] < 1e-4 and report.step == "format"
    session, x = onnx_session(out), images((1, 6, 20))
    names = [one.name for one in session.get_inputs()]
    assert f"inputs: {', '.join(names)};" in report.note
    if options.get("positions_as_inputs"):
        assert names == ["images", "coords", "index", "known"]
        return
    for images_of_size in (x, images((1, 12, 8))) if options else (x,):
        found = torch.from_numpy(session.run(None, {"images": images_of_size.numpy()})[0])
        assert torch.allclose(found, model(images_of_size), atol=1e-4)


def test_a_resnet_of_timm_is_converted_to_onnx(timm, tmp_path):
    peer("onnxscript")
    theirs = timm.create_model("resnet50", layers=(1, 1, 1, 1), num_classes=5).eval()
    theirs.default_cfg = theirs.pretrained_cfg = theirs.pretrained_cfg | {"input_size": (3, 64, 64)}
    model, reports = vitpos.convert(theirs, to="onnx", out=tmp_path / "a.onnx")
    assert 0 <= reports[-1].numbers["output_difference"] < 1e-4
    shape = tuple(onnx_session(tmp_path / "a.onnx").get_inputs()[0].shape[1:])
    found = onnx_session(tmp_path / "a.onnx").run(None, {"images": images(shape).numpy()})[0]
    assert torch.allclose(torch.from_numpy(found), model(images(shape)), atol=1e-3)


def test_plugins_that_a_file_from_elsewhere_names_do_not_get_into_the_converted_file(cells, tmp_path):
    tensors, about = read_tensors(cells["learned"] / "weights.safetensors")
    (tmp_path / "evil.py").write_text("raise SystemExit('it ran')")
    stored = json.loads(about["cell"]) | {"plugins": {"plugins": [{"path": str(tmp_path / "evil.py")}]}}
    write_tensors(tmp_path / "x.safetensors", tensors, {"cell": json.dumps(stored)})
    vitpos.convert(tmp_path / "x.safetensors", out=tmp_path / "y.safetensors")
    assert json.loads(metadata_or_empty(tmp_path / "y.safetensors")["cell"])["plugins"] == {}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"to": "onnx", "out": "a.safetensors"}, "does not fit the format 'onnx'; give a file .onnx"),
        ({"to": "hf", "out": "a.safetensors"}, "does not fit the format 'hf'; give a folder"),
        ({"out": "a.pth"}, "does not fit the format 'vitpos'"),
        ({"out": "no/such/a.safetensors"}, "is not a folder; create it first"),
        ({"mode": "cubic"}, "cannot resample with mode 'cubic'"),
        ({"coords": "ntks"}, "coords='ntks'; choose one of interpolate, rebuild, ntk"),
        ({"patch_mode": "bicubic-norm"}, "cannot resize patches with mode 'bicubic-norm'"),
        ({"to": "tf"}, "to='tf'; choose one of vitpos, timm, hf, onnx"),
        ({"grid": 5}, r"grid=5; give rows and columns"),
        ({"grid": (5, 2.5)}, r"grid=\(5, 2.5\); give rows and columns"),
        ({"patch": 0}, "patch=0; give one number or"),
        ({"window": (3, 3, 3)}, r"window=\(3, 3, 3\); give one number or"),
        ({"dynamic_size": True}, "dynamic_size is for ONNX, not for to='vitpos'"),
        ({"positions_as_inputs": True, "to": "timm"}, "positions_as_inputs is for ONNX, not for to='timm'"),
        ({"heal": "mnist"}, "healing follows a swap of the encoding"),
        ({"encoding": "ropes"}, "encoding 'ropes': .*rope"),
        ({"encoding": "rope", "heal": "mnists"}, "mnists"),
    ],
)
def test_mistakes_are_refused_in_one_line(cells, tmp_path, options, message):
    if "out" in options:
        options = options | {"out": tmp_path / options["out"]}
    with pytest.raises(InputError, match=message) as caught:
        vitpos.convert(cells["learned"], **options)
    assert "\n" not in str(caught.value)


def test_options_are_checked_before_the_checkpoint_is_read(tmp_path):
    with pytest.raises(InputError, match="coords='ntks'"):
        vitpos.convert(tmp_path / "no.safetensors", grid=(5, 5), coords="ntks")


def test_a_model_in_memory_is_converted_as_its_file_is(cells):
    model = vitpos.load(cells["learned + rope"]).train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    for options in ({"grid": (3, 6)}, {"grid": (5, 5), "coords": "rebuild"}, {"encoding": "rope"}):
        from_memory, _ = vitpos.convert(model, **options)
        from_file, _ = vitpos.convert(cells["learned + rope"], **options)
        shape = (1, *(a * b for a, b in zip(from_file.geometry.grid, from_file.patch, strict=True)))
        assert torch.equal(from_memory(images(shape)), from_file(images(shape)))
    assert model.training and same_weights(model.state_dict(), before)


def test_a_converted_model_is_converted_again(cells):
    wide, _ = vitpos.convert(cells["learned + rope"], grid=(3, 6))
    back, _ = vitpos.convert(wide, encoding="rope")
    assert back.geometry.grid == (3, 6) and back.train_grid == vitpos.load(cells["rope"]).train_grid
    again, _ = vitpos.convert(vitpos.convert(cells["rope"], grid=(3, 6))[0], grid=back.train_grid)
    shape = vitpos.load(cells["rope"]).patch
    shape = (1, back.train_grid[0] * shape[0], back.train_grid[1] * shape[1])
    assert torch.equal(again(images(shape)), vitpos.load(cells["rope"])(images(shape)))


def test_a_model_built_from_an_object_and_a_run_are_refused_with_what_to_give(cells):
    built = vitpos.load(cells["learned"])
    with pytest.raises(InputError, match="build it with a spec, such as 'learned \\+ rope'"):
        vitpos.convert(ViT((1, 4, 8), 2, built.encoding, patch=2, dim=16, depth=1, heads=2), grid=(5, 5))
    with pytest.raises(InputError, match="is a run; give one of its cells"):
        vitpos.convert(Path(cells["learned"]).parents[1], grid=(5, 5))


def test_healing_brings_predictions_back_without_labels(cells):
    data = load_data("stripes(count=40)")
    options = {"encoding": "rope", "heal": data, "healing": Healing(epochs=30, batch_size=8, lr=3e-3)}
    model, reports = vitpos.convert(cells["learned"], **options)
    swapped, healed = numbers(reports, "encoding"), numbers(reports, "heal")
    assert healed["loss_last"] < healed["loss_first"] / 3 and healed["kl"] < swapped["kl"]
    assert [report.step for report in reports] == ["encoding", "heal"] and not model.training


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "grid", "patch"),
    [
        ("vit_small_patch16_224", (24, 24), None),
        ("vit_small_patch16_224", (7, 28), None),
        ("vit_small_patch16_384", (14, 14), None),
        ("vit_small_patch16_224", (28, 28), 8),
        ("vit_small_patch14_dinov2", (16, 24), None),
        ("vit_small_patch14_reg4_dinov2", (16, 16), 16),
        ("deit3_small_patch16_224", (7, 28), None),
        ("vit_base_patch16_siglip_224", (10, 16), None),
        ("vit_small_patch16_dinov3", (10, 20), None),
        ("vit_small_patch16_rope_mixed_224", (12, 20), None),
        ("eva02_small_patch14_336", (16, 12), None),
        ("swin_tiny_patch4_window7_224", (112, 56), None),
    ],
)
def test_published_sizes_are_converted_and_loaded_by_timm(timm, tmp_path, name, grid, patch):
    theirs = randomize(timm.create_model(name, num_classes=10), dtype=torch.float32)
    model, reports = vitpos.convert(theirs, grid=grid, patch=patch, to="timm", out=tmp_path / "out")
    again = timm.create_model(f"local-dir:{tmp_path / 'out'}", pretrained=True).eval()
    x = images(again.pretrained_cfg["input_size"])
    with torch.no_grad():
        assert torch.allclose(again(x), model(x), atol=1e-4)
    assert numbers(reports, "format")["output_difference"] < 1e-5

"""A checkpoint from elsewhere is evaluated with its own classes and preprocessing, and gets the numbers of its library."""

import json
import math

import numpy as np
import pytest
import torch
from PIL import Image

import vitpos
from tests.lab import foreign
from tests.references import peer
from vitpos.data.dataset import load
from vitpos.errors import InputError
from vitpos.evaluations.context import EvalContext
from vitpos.inspection.inspect import inspect
from vitpos.interop.class_names import OutputNames, config_names, match_classes, read_class_file
from vitpos.interop.preprocessing import Preprocessing, huggingface_preprocessing, timm_preprocessing
from vitpos.interop.wrapped_models import WrappedClassifier, WrappedViT
from vitpos.lab.foreign_data import fit_data
from vitpos.lab.inspection_targets import find_targets
from vitpos.lab.open_models import open_checkpoint
from vitpos.models.base import PatchClassifier

SMALL = {"img_size": 32, "patch_size": 8, "embed_dim": 32, "depth": 2, "num_heads": 2}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return foreign.train(tmp_path_factory.mktemp("trained") / "run")


@pytest.fixture(scope="module")
def checkpoints(trained, tmp_path_factory):
    """Our trained model in the files of timm and of Hugging Face."""
    model, folder = vitpos.load(trained), tmp_path_factory.mktemp("checkpoints")
    return {
        "timm": foreign.save_timm(model, folder / "timm"),
        "huggingface": foreign.save_huggingface(model, folder / "huggingface"),
    }


def numbers(opened, spec="accuracy"):
    return EvalContext(opened.model, opened.data).evaluate(spec).numbers


@pytest.mark.parametrize("library", ["timm", "huggingface"])
def test_our_weights_in_another_librarys_files_get_exactly_our_numbers(trained, checkpoints, library):
    opened = open_checkpoint(checkpoints[library], foreign.DATA)
    for spec in ("accuracy", "jigsaw(positions='stay', per='image')"):
        expected = vitpos.evaluate(trained, foreign.DATA, spec)
        assert numbers(opened, spec) == next(iter(expected.values())).numbers
    assert "mean (0.1307)" in opened.notes[0]


def test_a_checkpoint_is_evaluated_from_python_by_its_path(trained, checkpoints):
    found = vitpos.evaluate(checkpoints["timm"], foreign.DATA)["accuracy"].numbers
    assert found == vitpos.evaluate(trained, foreign.DATA)["accuracy"].numbers
    with pytest.raises(InputError, match="as a spec"):
        vitpos.evaluate(checkpoints["timm"], load(foreign.DATA))


def test_our_own_weights_file_is_a_checkpoint_too(trained):
    opened = open_checkpoint(trained / "weights.safetensors", "mnist(limit=1000, test_limit=300)")
    assert numbers(opened) == vitpos.evaluate(trained, foreign.DATA)["accuracy"].numbers


def test_a_file_alone_needs_the_name_of_its_architecture_and_uses_the_normalization_of_the_data(tmp_path):
    from safetensors.torch import save_file

    model = foreign.random_timm("vit_tiny_patch16_224", classes=3)
    save_file(model.state_dict(), tmp_path / "weights.safetensors")
    folder = foreign.image_folder(tmp_path / "images", ["a", "b", "c"], images=2)
    data = f"image_folder(path={str(folder)!r})"
    with pytest.raises(InputError, match="architecture"):
        open_checkpoint(tmp_path / "weights.safetensors", data)
    plain = open_checkpoint(tmp_path / "weights.safetensors", data, architecture="vit_tiny_patch16_224")
    assert plain.data.mean == load(data).mean
    assert "of the data set, because the checkpoint states none" in plain.notes[0]
    tagged = open_checkpoint(
        tmp_path / "weights.safetensors", data, architecture="vit_tiny_patch16_224.augreg_in21k_ft_in1k"
    )
    assert tagged.data.mean == (0.5, 0.5, 0.5)
    assert "test_crop=0.9" in tagged.cell.data
    x = load(tagged.cell.data).test.images[:2]
    with torch.no_grad():
        ours, theirs = tagged.model(tagged.data.normalize(x)), model((x / 255 - 0.5) / 0.5)
    assert torch.allclose(ours, theirs, atol=1e-4)


REFUSED = {  # models that load refuses → their options, and how they are evaluated
    "aimv2_large_patch14_224": (SMALL, WrappedViT),
    "vit_pwee_patch16_reg1_gap_256": (SMALL, WrappedClassifier),
    "resnet18": ({}, WrappedClassifier),
    "swinv2_tiny_window8_256": (
        {"img_size": 64, "window_size": 4, "embed_dim": 24, "depths": [1, 1]},
        WrappedClassifier,
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_model_that_load_refuses_is_evaluated_as_it_is(tmp_path, name):
    options, kind = REFUSED[name]
    model = foreign.random_timm(name, classes=2, **options)
    peer("timm.models").save_for_hf(model, str(tmp_path / "model"), model_args=options, safe_serialization=True)
    folder = foreign.image_folder(tmp_path / "images", ["a", "b"])
    opened = open_checkpoint(
        tmp_path / "model", f"image_folder(path={str(folder)!r}, size={options.get('img_size', 64)})"
    )
    x = opened.data.normalize(opened.data.test.images[:4])
    with torch.no_grad():
        assert torch.allclose(opened.model(x), model(x), atol=1e-5)
    assert set(numbers(opened)) >= {"accuracy"}
    assert isinstance(opened.model, kind)
    assert "run unchanged" in opened.notes[-1]


def test_a_subset_of_the_classes_is_enough_and_all_outputs_can_be_predicted(tmp_path):
    model = foreign.random_timm("vit_tiny_patch16_224", classes=1000, **SMALL)
    peer("timm.models").save_for_hf(model, str(tmp_path / "model"), model_args=SMALL, safe_serialization=True)
    found = {}
    for names in (["n01443537", "n02123045"], ["goldfish", "tabby"], ["1", "281"]):
        folder = foreign.image_folder(tmp_path / names[0], names)
        opened = open_checkpoint(tmp_path / "model", f"image_folder(path={str(folder)!r})")
        assert opened.data.test.labels.tolist() == [1] * 3 + [281] * 3
        assert len(opened.data.classes) == 1000
        assert opened.data.shape == (3, 32, 32)
        found[names[0]] = numbers(opened)
        assert "2 of 1000 outputs" in opened.notes[1]
    unknown = foreign.image_folder(tmp_path / "unknown", ["goldfish", "unicorn"])
    with pytest.raises(InputError, match=r"1 of 2 classes .*\(unicorn\).*tench, Tinca tinca.*give a file of classes"):
        open_checkpoint(tmp_path / "model", f"image_folder(path={str(unknown)!r})")
    with torch.no_grad():
        predicted = model(opened.data.normalize(opened.data.test.images[:])).argmax(1)
    expected = (predicted == opened.data.test.labels).double().mean().item()
    assert all(one["accuracy"] == expected for one in found.values())


def test_names_are_from_the_configuration_or_from_a_file(trained, tmp_path):
    names = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
    folder = foreign.save_huggingface(vitpos.load(trained), tmp_path / "named", names)
    assert numbers(open_checkpoint(folder, foreign.DATA)) == numbers(
        open_checkpoint(trained / "weights.safetensors", None)
    )
    given = tmp_path / "names.txt"
    given.write_text("\n".join(map(str, range(10))))
    opened = open_checkpoint(folder, foreign.DATA + " + classes(keep=(6, 9))", classes=given)
    assert set(opened.data.test.labels.tolist()) == {6, 9}
    accuracy = numbers(opened)["accuracy"]
    own = vitpos.load(trained)
    data = load(foreign.DATA + " + classes(keep=(6, 9))")
    with torch.no_grad():
        right = own(data.normalize(data.test.images)).argmax(1) == opened.data.test.labels
    assert accuracy == right.double().mean().item()


@pytest.mark.parametrize(
    ("suffix", "text"),
    [
        (".txt", "tench\ngoldfish\n\n"),
        (".json", '["tench", "goldfish"]'),
        (".json", '{"1": "goldfish", "0": "tench"}'),
        (".json", '{"0": ["n01440764", "tench"], "1": ["n01443537", "goldfish"]}'),
    ],
)
def test_a_file_of_names_has_lines_or_json(tmp_path, suffix, text):
    path = tmp_path / f"names{suffix}"
    path.write_text(text)
    known = read_class_file(path)
    assert match_classes(["Goldfish", "tench"], 2, known, remedy="") == [1, 0]


@pytest.mark.parametrize("text", ["[", "[1, 2]", "[]", '{"a": "b"}', '{"5": "b"}', "[[]]", "3", "null"])
def test_a_damaged_file_of_names_is_one_line(tmp_path, text):
    path = tmp_path / "names.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"write \[|write a list") as error:
        read_class_file(path)
    assert "\n" not in str(error.value)


def test_names_must_be_unique_and_as_many_as_outputs():
    known = OutputNames((("crane, bird",), ("crane, machine",)), "the file")
    with pytest.raises(InputError, match="the outputs 0 and 1"):
        match_classes(["crane"], 2, known, remedy="x")
    with pytest.raises(InputError, match="names of one output, 0"):
        match_classes(["bird", "crane, bird"], 2, known, remedy="x")
    with pytest.raises(InputError, match="2 names, and the checkpoint has 3 outputs"):
        match_classes(["bird"], 3, known, remedy="x")
    with pytest.raises(InputError, match=r"4 classes .* 3 outputs without names; x"):
        match_classes(list("abcd"), 3, None, remedy="x")
    assert config_names({"id2label": {0: "LABEL_0", 1: "LABEL_1"}}) is None
    assert config_names({"pretrained_cfg": {"label_names": ["a", "b"]}}).shown == ("a", "b")


def test_preprocessing_is_read_from_both_libraries():
    timm = timm_preprocessing(
        {"input_size": [3, 32, 48], "mean": [0.5], "std": [0.2], "crop_pct": 0.9, "interpolation": "bilinear"}, ""
    )
    assert timm == Preprocessing("", (32, 48), (0.5,), (0.2,), 0.9, None, "bilinear")
    clip = {"size": {"shortest_edge": 64}, "crop_size": {"height": 48, "width": 48}, "do_center_crop": True}
    found = huggingface_preprocessing({**clip, "resample": 3, "image_mean": [0.1], "image_std": [0.3]}, "")
    assert found == Preprocessing("", (48, 48), (0.1,), (0.3,), 0.75, True, "bicubic")
    assert huggingface_preprocessing({"size": {"height": 24, "width": 30}}, "").keep_aspect is False


def test_an_image_size_of_one_number_is_read_as_the_library_reads_it():
    transformers = peer("transformers")
    for kind, keeps in (("DeiTImageProcessor", False), ("CLIPImageProcessor", True), ("BitImageProcessor", True)):
        config = {"size": 64, "crop_size": 48, "do_center_crop": True, "image_processor_type": kind}
        found = huggingface_preprocessing(config, "")
        assert (found.size, found.crop, found.keep_aspect) == ((48, 48), 0.75, keeps)
        size = getattr(transformers, kind)(size=64, crop_size=48).size
        assert ("shortest_edge" in size) == keeps


def test_images_have_the_size_of_the_training_and_its_crop():
    config = {"input_size": [3, 32, 32], "test_input_size": [3, 48, 48], "crop_pct": 0.9, "test_crop_pct": 1.0}
    found = timm_preprocessing(config, "")
    assert (found.size, found.crop) == ((32, 32), 0.9)


@pytest.mark.parametrize("value", [None, [], "x", {"size": "x"}, {"size": [1, 2, 3]}, {"size": {"height": 10**9}}])
def test_a_configuration_of_another_form_states_nothing(value):
    assert huggingface_preprocessing(value, "").size is None
    broken = {"input_size": value, "mean": value, "std": [0], "crop_pct": "x", "interpolation": 3, "crop_mode": 1}
    assert timm_preprocessing(broken, "") == Preprocessing("")


@pytest.mark.parametrize(
    ("stated", "scale"),
    [
        ({}, 1.0),
        ({"rescale_factor": 1 / 255}, 1.0),
        ({"rescale_factor": 0.00392156862745098}, 1.0),
        ({"rescale_factor": 1 / 127.5}, 2.0),
        ({"do_rescale": False}, 255.0),
        ({"do_rescale": False, "rescale_factor": 1 / 255}, 255.0),
        ({"do_normalize": False, "rescale_factor": 1 / 127.5}, 2.0),
    ],
)
def test_the_rescaling_of_pixels_is_part_of_mean_and_std(stated, scale):
    mean, std = (0.5, 0.4, 0.3), (0.2, 0.3, 0.4)
    found = huggingface_preprocessing({"image_mean": list(mean), "image_std": list(std), **stated}, "")
    if stated.get("do_normalize") is False:
        mean, std = (0.0,) * 3, (1.0,) * 3
    pixels = np.array([0, 100, 255])
    factor = stated.get("rescale_factor", 1 / 255) if stated.get("do_rescale", True) else 1.0
    ours = (pixels / 255 - np.array(found.mean)) / np.array(found.std)
    assert np.allclose(ours, (pixels * factor - np.array(mean)) / np.array(std))
    assert np.allclose(found.std, np.array(std) / scale)


@pytest.mark.parametrize("factor", [0, -1, "x", None, float("nan"), float("inf"), True, 1e300])
def test_a_rescaling_of_another_form_leaves_the_normalization_open(factor):
    stated = {"image_mean": [0.5], "image_std": [0.5], "rescale_factor": factor}
    assert huggingface_preprocessing(stated, "").mean is None


def test_images_are_cropped_and_resized_as_the_checkpoint_states(tmp_path):
    folder = foreign.image_folder(tmp_path, ["a", "b"], size=(20, 40))
    stated = Preprocessing("", (16, 16), crop=0.5, keep_aspect=True, interpolation="bilinear")
    spec = fit_data(f"image_folder(path={str(folder)!r})", (3, 16, 16), stated)
    original = Image.open(folder / "val" / "a" / "0.png")
    cropped = original.resize((16, 16), Image.Resampling.BILINEAR, (15, 5, 25, 15))
    assert torch.equal(load(spec).test.images[:1][0], torch.tensor(np.array(cropped)).movedim(2, 0))
    squashed = fit_data(
        f"image_folder(path={str(folder)!r})", (3, 16, 16), Preprocessing("", crop=1.0, keep_aspect=False)
    )
    whole = original.resize((16, 16), Image.Resampling.BICUBIC)
    assert torch.equal(load(squashed).test.images[:1][0], torch.tensor(np.array(whole)).movedim(2, 0))
    assert load(fit_data(f"image_folder(path={str(folder)!r}, size=24)", (3, 16, 16), stated)).shape == (3, 24, 24)
    assert load(fit_data("mnist(limit=9, test_limit=9)", (1, 56, 56), stated)).shape == (1, 56, 56)


def test_a_configuration_cannot_build_a_model_larger_than_its_tensors(checkpoints, tmp_path):
    for library, changes in (
        ("timm", {"model_args": {"embed_dim": 1 << 20, "depth": 64}}),
        ("timm", {"model_args": {"depth": 10**6}}),
        ("huggingface", {"hidden_size": 1 << 20, "intermediate_size": 1 << 22}),
        ("huggingface", {"num_hidden_layers": 10**6}),
    ):
        folder = tmp_path / "changed"
        folder.mkdir(exist_ok=True)
        for file in checkpoints[library].iterdir():
            (folder / file.name).write_bytes(file.read_bytes())
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | changes))
        with pytest.raises(InputError, match=r"larger than the stored|should be|does not use|too large") as error:
            open_checkpoint(folder, foreign.DATA)
        assert torch.is_grad_enabled()
        assert "\n" not in str(error.value)
        assert torch.is_grad_enabled(), "a refused file leaves the state of torch as it was"


def test_a_checkpoint_without_data_reads_nothing_and_one_without_classifier_says_so(checkpoints, tmp_path):
    with pytest.raises(InputError, match="give data"):
        open_checkpoint("hf:nobody/nothing", None)
    transformers = peer("transformers")
    config = transformers.Dinov2Config(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, image_size=28, patch_size=7, num_channels=1
    )
    transformers.Dinov2Model(config).save_pretrained(tmp_path)
    with pytest.raises(InputError, match="has no classifier"):
        open_checkpoint(tmp_path, foreign.DATA)
    opened = open_checkpoint(tmp_path, foreign.DATA, need_classes=False)
    assert isinstance(opened.model, PatchClassifier)
    assert not isinstance(opened.model, WrappedViT)


FAMILIES = {  # timm's name → options; the last: what inspect finds
    "vit_base_patch16_clip_224": (SMALL, ["table", "model"]),
    "vit_base_patch16_siglip_224": (SMALL, ["table", "model"]),
    "eva02_tiny_patch14_336": (SMALL, ["table", "offsets", "model"]),
    "vit_small_patch16_dinov3": (SMALL, ["offsets", "model"]),
    "aimv2_large_patch14_224": (SMALL, ["table", "model"]),
    "swin_tiny_patch4_window7_224": (
        {"img_size": 56, "window_size": 7, "embed_dim": 16, "depths": [1, 1], "num_heads": [1, 2]},
        ["offsets"],
    ),
}


FEW = ("vit_base_patch16_clip_224", "aimv2_large_patch14_224")  # in the default tests: rebuilt, and run as it is


@pytest.mark.parametrize("name", [n if n in FEW else pytest.param(n, marks=pytest.mark.slow) for n in FAMILIES])
def test_every_family_is_inspected_evaluated_and_attacked(tmp_path, name):
    options, sections = FAMILIES[name]
    model = foreign.random_timm(name, classes=2, **options)
    peer("timm.models").save_for_hf(model, str(tmp_path / "model"), model_args=options, safe_serialization=True)
    folder = foreign.image_folder(tmp_path / "images", ["a", "b"], images=5)
    data = f"image_folder(path={str(folder)!r})"
    ((_, make),) = find_targets(tmp_path / "model", None, data)
    found = {section.name: section.numbers for section in inspect(make(), images=10)}
    assert list(found) == sections
    if "model" in found:
        assert len(found["model"]["attention_distance"]) == options["depth"]
        assert all(map(math.isfinite, found["model"]["position_share"]))
    opened = open_checkpoint(tmp_path / "model", data)
    assert 0 <= numbers(opened, "shuffle(mask_ratio=0.5)")["accuracy"] <= 1
    assert numbers(opened, "cost(batch_size=2, steps=1)")["parameters"] > 1000
    for spec in ("closed_form(images=1)", "gradient_matching(images=1, steps=1, label='known')"):
        result = EvalContext(opened.model, opened.data).evaluate(spec)
        assert result.reason or "psnr" in result.numbers

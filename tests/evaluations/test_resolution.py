"""Accuracy at other image sizes."""

import math
from copy import deepcopy
from dataclasses import replace

import pytest
import torch

from tests.evaluate import evaluate, numbers_of
from tests.evaluations.models import (
    accuracy_of,
    digits,
    inputs_of,
    random_model,
    small_vit,
)
from vitpos.data.image_ops import resize
from vitpos.encodings.protocols import ntk_scaled
from vitpos.errors import InputError
from vitpos.evaluations.resolution import scaled_grid
from vitpos.models import MODELS
from vitpos.patches import patchify
from vitpos.positions import Positions


def test_the_training_size_gives_the_usual_accuracy_and_other_sizes_need_whole_patches():
    data = digits(200)
    model = random_model("learned")
    usual = numbers_of("accuracy", model, data)["accuracy"]
    for coords in ("interpolate", "extrapolate"):
        same = numbers_of(f"resolution(size=(28, 28), coords='{coords}')", model, data)
        assert same["accuracy"] == usual
    with pytest.raises(InputError, match="whole patches of 4x4; give multiples of 4 and 4"):
        numbers_of("resolution(size=(30, 28))", model, data)


def test_each_option_of_resolution_evaluates_the_model_it_describes():
    model, data = random_model("learned + rope"), digits(300)
    images, extrapolated = resize(data.test.images, (40, 20)), Positions.from_grid((10, 5))
    scaled = deepcopy(model)
    scaled.encoding = ntk_scaled(scaled.encoding, 10 / 7)
    expected = {
        "coords='interpolate'": accuracy_of(model, data, images),
        "coords='extrapolate'": accuracy_of(model, data, images, extrapolated),
        "coords='ntk'": accuracy_of(scaled, data, images, extrapolated),
        "resize_tables='bicubic-antialias'": accuracy_of(
            model.resized((10, 5), mode="bicubic-antialias"), data, images
        ),
        "resize_tables='area-norm', coords='extrapolate'": accuracy_of(
            model.resized((10, 5), mode="area-norm"), data, images, extrapolated
        ),
    }
    found = {
        options: numbers_of(f"resolution(size=(40, 20), {options})", model, data)["accuracy"] for options in expected
    }
    assert found == expected and len(set(found.values())) >= 4, "and they differ"


def test_a_table_resized_by_bicubic_equals_interpolated_coordinates():
    model, data = random_model("learned"), digits(20)
    inputs = data.normalize(resize(data.test.images, (40, 20)))
    with torch.no_grad():
        interpolated, resized = model(inputs), model.resized((10, 5), mode="bicubic")(inputs)
    assert torch.allclose(interpolated, resized, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("size", [(48, 32), (20, 36), (28, 56), (28, 28), (16, 12)])
@pytest.mark.parametrize("coords", ["", ", coords='extrapolate'", ", coords='ntk'"])
def test_patches_of_a_padded_image_keep_their_training_positions(size, coords):
    data = digits(3)
    shown, pos = inputs_of(random_model("rope"), f"resolution({size=}, resize_mode='pad'{coords})", data)
    assert shown.shape[2:] == size and pos.grid == (size[0] // 4, size[1] // 4)
    own = patchify(data.normalize(data.test.images), (4, 4)).unflatten(1, (7, 7))
    black = data.normalize(torch.zeros(3, 1, 4, 4, dtype=torch.uint8)).flatten(1)
    patches = patchify(shown, (4, 4))  # (3, N, 16)
    for patch, (row, column) in zip(patches.unbind(1), pos.coords[0].long().tolist(), strict=True):
        inside = 0 <= row < 7 and 0 <= column < 7
        assert torch.equal(patch, own[:, row, column] if inside else black), (row, column)
    first = [int((28 - side) / 8) for side in size]  # of an odd number of patches the larger half comes last
    assert pos.coords[0, 0].tolist() == first and torch.equal(
        pos.coords - pos.coords[:, :1], Positions.from_grid(pos.grid).coords
    )


def test_interpolated_coordinates_of_padded_and_of_resized_images():
    model, data = random_model("learned"), digits(3)
    interpolated = Positions.from_grid((14, 10), train_grid=(7, 7)).coords
    assert torch.equal(
        inputs_of(model, "resolution(size=(56, 40), resize_mode='pad', coords='interpolate')", data)[1].coords,
        interpolated,
    )
    shown, pos = inputs_of(random_model("learned"), "resolution(size=(56, 40))", data)
    assert torch.equal(shown, data.normalize(resize(data.test.images, (56, 40)))) and torch.equal(
        pos.coords, interpolated
    )


def test_a_resolution_curve_consists_of_single_sizes_and_its_auc_is_a_weighted_mean():
    model, data = random_model("learned"), digits(60)
    found = evaluate("resolution_curve(factors=(0.5, 1.0, 2.0))", model, data)
    single = [
        numbers_of(f"resolution(size=({side}, {side}))", model, data)["accuracy"]
        for side in (16, 28, 56)  # seven patches of 4: half of them, to the nearest, are four
    ]
    assert found.curves == {"accuracy": dict(zip((0.5, 1.0, 2.0), single, strict=True))}
    low, high = math.log(28 / 16), math.log(56 / 28)
    area = (low * (single[0] + single[1]) / 2 + high * (single[1] + single[2]) / 2) / (low + high)
    assert found.numbers == {"auc": pytest.approx(area), "min_accuracy": min(single)}


def test_a_resolution_curve_resamples_tables_as_single_sizes_do():
    model, data = random_model("learned"), digits(200)
    curves = {}
    for mode in ("bicubic", "bilinear-align_corners", "area-norm"):
        curves[mode] = evaluate(f"resolution_curve(factors=(0.5, 2.0), resize_tables={mode!r})", model, data).curves
        single = {
            factor: numbers_of(f"resolution(size=({side}, {side}), resize_tables={mode!r})", model, data)["accuracy"]
            for factor, side in ((0.5, 16), (2.0, 56))
        }
        assert curves[mode] == {"accuracy": single}
    assert curves["bicubic"] != curves["bilinear-align_corners"] != curves["area-norm"]


def test_scaled_grids_round_halves_up_and_have_at_least_one_patch():
    assert [scaled_grid((side, side), 0.5)[0] for side in (5, 6, 7, 8, 9)] == [3, 3, 4, 4, 5]
    assert scaled_grid((7, 3), 0.01) == (1, 1) and scaled_grid((7, 10), 0.35) == (2, 4)
    assert scaled_grid((10, 50), 0.29) == (3, 15)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("resolution_curve(factors=(1000.0, 1.0))", "above 0, up to 16"),
        ("resolution_curve(factors=(1.0, 1e300))", "above 0, up to 16"),
        ("resolution_curve(factors=(0.0, 1.0))", "above 0, up to 16"),
        (
            "resolution_curve(factors=(1.0, 1.05))",
            "the same in whole patches of a grid of 7x7; give some further apart",
        ),
        ("resolution(size=(28, 40000))", "no more than 16 times"),
        ("resolution(size=(0, 28))", "give 1 patch or more"),
        ("resolution(resize_tables='foo')", "cannot resample with mode 'foo'; use bicubic"),
        ("resolution(resize_tables='')", "cannot resample with mode ''; use bicubic"),
    ],
)
def test_impossible_sizes_and_modes_are_refused(spec, message):
    with pytest.raises(InputError, match=message):
        numbers_of(spec, random_model("none"), digits(3))


def test_finetuning_improves_a_copy_and_does_not_change_the_model():
    model, data = (
        small_vit("learned", "vit(patch=7, dim=16, depth=1, heads=2, weight_init='xavier')").float(),
        digits(200),
    )
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    data = replace(data, train=data.test)
    usual = numbers_of("resolution(size=(42, 35), resize_mode='pad')", model, data)["accuracy"]
    spec = "resolution(size=(42, 35), resize_mode='pad', resize_tables='bicubic', finetune_steps=150, finetune_lr=0.01)"
    tuned = numbers_of(spec, model, data)["accuracy"]
    assert tuned > usual + 0.2 and tuned == numbers_of(spec, model, data)["accuracy"]
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize("spec", ["resolution", "resolution_curve"])
def test_a_model_without_patches_gets_a_reason(spec):
    result = evaluate(spec, MODELS.build("cnn", (1, 28, 28), 10), digits(2))
    assert not result.numbers and not result.curves and "no patches" in result.reason

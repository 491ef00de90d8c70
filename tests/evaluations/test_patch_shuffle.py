"""Predictions on images with permuted patches: ``jigsaw`` and ``shuffle``."""

import math
from dataclasses import replace

import pytest

from tests.evaluate import evaluate, numbers_of
from tests.evaluations.models import (
    digits,
    random_model,
)
from vitpos.data.dataset import load
from vitpos.errors import InputError
from vitpos.models import MODELS


@pytest.mark.parametrize("spec", ["minimal", "minimal(patch=2)", "vit(dim=16, depth=2, heads=2, registers=1)"])
@pytest.mark.parametrize("encoding", ["none", "learned", "sinusoidal", "nearby"])
@pytest.mark.parametrize("per", ["dataset", "image"])
def test_permuting_patches_together_with_their_positions_keeps_predictions(spec, encoding, per):
    data = digits(200)
    follow = f"jigsaw(grid=(7, 7), per='{per}')"
    assert numbers_of(follow, random_model(encoding, spec), data)["consistency"] == 1


@pytest.mark.parametrize("encoding", ["none", "learned"])
def test_permuting_patches_alone_changes_predictions_only_with_positions(encoding):
    data = digits(300)
    numbers = numbers_of("jigsaw(positions='stay')", random_model(encoding), data)
    assert (numbers["consistency"] == 1) == (encoding == "none")
    assert (numbers["logit_difference"] < 1e-5) == (encoding == "none")


def test_a_model_without_patches_gets_the_permuted_image():
    data = digits(100)
    cnn = MODELS.build("cnn", (1, 28, 28), 10)
    follow, stay = (numbers_of(f"jigsaw(grid=(7, 7), positions='{p}')", cnn, data) for p in ("follow", "stay"))
    permuted = load("mnist(limit=8) + permute_patches(grid=(7, 7))")
    same = replace(permuted, test=permuted.test.head(100))
    assert follow == stay
    assert follow["accuracy"] == numbers_of("accuracy", cnn, same)["accuracy"]
    with pytest.raises(InputError, match="needs grid"):
        numbers_of("jigsaw", cnn, data)


@pytest.mark.parametrize("spec", ["none", "none + none"])
def test_a_model_without_positions_is_invariant_to_shuffling(spec):
    numbers = numbers_of("shuffle(mask_ratio=0.5)", random_model(spec), digits(100))
    assert numbers["consistency"] == 1 and numbers["feature_distance_rel"] < 1e-5
    assert numbers["consistent_correct"] == numbers["accuracy"]


def test_shuffling_patches_with_positions_keeps_features_and_without_them_changes_features():
    model, data = random_model("learned"), digits(100)
    follow, stay = (numbers_of(f"shuffle(mask_ratio=0.5, positions='{x}')", model, data) for x in ("follow", "stay"))
    assert follow["consistency"] == 1 and follow["feature_distance_rel"] < 1e-5
    assert stay["feature_distance_rel"] > 1e-3 and 0.4 < stay["masked_fraction"] <= 0.5


def test_feature_distances_equal_their_formulas():
    model, data = random_model("learned"), digits(3)
    seen = []
    features = model.forward_features
    model.forward_features = lambda images, positions=None: seen.append(features(images, positions)) or seen[-1]
    numbers = numbers_of("shuffle(mask_ratio=1.0)", model, data)
    original, shuffled = (x.double() for x in seen)
    lengths = [(a - b).norm().item() for a, b in zip(original, shuffled, strict=True)]
    assert numbers["feature_distance_sq"] == pytest.approx(sum(x * x for x in lengths) / 3)
    assert numbers["feature_distance"] == pytest.approx(sum(lengths) / 3)
    expected = sum(x / a.norm().item() for x, a in zip(lengths, original, strict=True)) / 3
    assert numbers["feature_distance_rel"] == pytest.approx(expected)


def test_kl_divergence_equals_its_formula():
    model, data = random_model("learned"), digits(4)
    probabilities = []
    model.head.register_forward_hook(lambda *call: probabilities.append(call[2].double().softmax(1).tolist()))
    stay, follow = (numbers_of(f"shuffle(mask_ratio=1.0, positions='{x}')", model, data) for x in ("stay", "follow"))
    original, shuffled = probabilities[:2]
    pairs = [(p, q) for row in zip(original, shuffled, strict=True) for p, q in zip(*row, strict=True)]
    assert stay["kl_divergence"] == pytest.approx(sum(p * math.log(p / q) for p, q in pairs) / 4)
    assert stay["kl_divergence"] > 0.001 and abs(follow["kl_divergence"]) < 1e-9


def test_hide_masked_hides_whole_blocks_and_needs_an_unknown_vector():
    spec = "shuffle(mask_ratio=0.5, hide_masked=True, grid={})"
    without = evaluate(spec.format("None"), random_model("learned"), digits(100))
    assert not without.numbers and "unknown vector" in without.reason
    model = random_model("learned + mjp", "minimal(patch=2)")
    for grid in ("None", "(7, 2)"):
        assert numbers_of(spec.format(grid), model, digits(100))["feature_distance_sq"] > 0
    hidden = []
    features = model.forward_features
    model.forward_features = lambda images, positions=None: hidden.append(positions) or features(images, positions)
    numbers_of(spec.format("(7, 2)"), model, digits(2))
    with pytest.raises(InputError, match="4x4 grid do not consist of whole patches of a 14x14 grid"):
        numbers_of(spec.format("(4, 4)"), model, digits(2))
    blocks = hidden[1].known.unflatten(1, (7, 2, 2, 7))
    assert (blocks == blocks[:, :, :1, :, :1]).all() and not blocks.all()


@pytest.mark.parametrize(
    "spec", ["shuffle(mask_ratio=0.0, positions='follow')", "jigsaw(grid=(1, 1), positions='follow')"]
)
def test_the_identity_permutation_changes_nothing_in_a_resized_model(spec):
    data = digits(8)
    model = MODELS.build("vit(patch=7, dim=16, depth=1, heads=2)", (1, 28, 28), 10, "rope").resized((8, 8))
    larger = data.test.images.repeat_interleave(2, 2).repeat_interleave(2, 3)
    found = numbers_of(spec, model, replace(data, test=replace(data.test, images=larger)))
    assert found["consistency"] == 1 and found.get("feature_distance_sq", 0) == 0


def test_positions_of_a_model_without_tokens_cannot_follow():
    data = digits(8)
    model = MODELS.build("cnn", (1, 28, 28), 10)
    without = evaluate("shuffle(grid=(4, 4), positions='follow')", model, data)
    assert not without.numbers and "patch tokens" in without.reason
    with pytest.raises(InputError, match="a seed of"):
        numbers_of("shuffle(grid=(4, 4), seed=99999999999999999999)", model, data)


@pytest.mark.parametrize("model", ["minimal", "vit(dim=16, depth=1, heads=2)"])
def test_hidden_positions_are_the_same_whether_they_follow_or_stay(model):
    model, data = random_model("learned + mjp", model), digits(20)
    spec = "shuffle(mask_ratio=0.5, hide_masked=True, positions='{}')"
    follow, stay = (numbers_of(spec.format(x), model, data) for x in ("follow", "stay"))
    assert follow == pytest.approx(stay)

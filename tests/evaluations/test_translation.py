"""Predictions, tokens and logits on shifted images."""

import math

import pytest
import torch

from tests.evaluate import evaluate, numbers_of
from tests.evaluations.models import (
    digits,
    inputs_of,
    random_model,
    small_vit,
    with_float64_inputs,
)
from vitpos.data.dataset import load
from vitpos.encodings import ENCODINGS
from vitpos.models.base import Classifier


def test_a_shift_moves_visible_pixels_and_fills_the_border_with_black():
    data = digits(100)
    model = random_model("learned")
    assert numbers_of("translation(by=(0, 0))", model, data)["consistency"] == 1
    shifted, original = inputs_of(model, "translation(by=(-1, 2))", data)[0], data.normalize(data.test.images)
    assert torch.equal(shifted[:, :, :24, 8:], original[:, :, 4:, :20])
    assert (shifted[:, :, 24:] == original.min()).all() and (shifted[:, :, :, :8] == original.min()).all()


@pytest.mark.parametrize("by", [(1, 0), (-2, 3)])
def test_tokens_without_positions_are_equivariant_to_cyclic_shifts(by):
    result = evaluate(f"translation(by={by}, border='wrap')", small_vit("none"), with_float64_inputs(digits(6)))
    found, tokens = result.numbers, result.curves["token_error"]
    assert found["consistency"] == 1 and found["logit_error"] < 1e-12 and max(tokens.values()) < 1e-12
    assert found["token_error"] == tokens[2] and list(tokens) == [1, 2]


RELATIVE = [name for name in ENCODINGS if "translation_invariant" in ENCODINGS.describe(name).traits]
assert len(RELATIVE) >= 12, "a trait that no encoding has would leave this test empty"


@pytest.mark.parametrize("encoding", [*RELATIVE, "learned", "sinusoidal", "liere"])
@pytest.mark.parametrize("by", [(0, 1), (-2, 1)])
def test_logits_of_relative_encodings_are_equal_in_the_overlap_of_two_crops(encoding, by):
    model = small_vit(encoding)
    for parameter in model.encoding.parameters():
        torch.nn.init.normal_(parameter)
    found = numbers_of(f"translation(by={by}, border='crop')", model, with_float64_inputs(digits(6)))
    assert (found["logit_error"] < 1e-10) == (encoding in RELATIVE) and found["token_error"] > 0


CLS = "vit(patch=4, dim=16, depth=2, heads=2, weight_init='xavier', registers=1)"


@pytest.mark.parametrize(
    ("encoding", "among_patches", "with_prefix"),
    [
        ("none", True, True),
        ("relative", True, True),
        ("rope(base=10.0, prefix_mode='unrotated')", True, True),
        ("rope(base=10.0, prefix_mode='center')", True, False),
        ("learned", False, False),
    ],
)
def test_logits_with_prefix_tokens_are_compared_separately(encoding, among_patches, with_prefix):
    model = small_vit(encoding, CLS)
    for parameter in model.encoding.parameters():
        torch.nn.init.normal_(parameter)
    found = numbers_of("translation(by=(1, 0), border='crop')", model, with_float64_inputs(digits(6)))
    assert (found["logit_error"] < 1e-10) == among_patches
    assert (found["prefix_logit_error"] < 1e-10) == with_prefix
    without = numbers_of("translation", small_vit(encoding.split("(")[0]), with_float64_inputs(digits(2)))
    assert "prefix_logit_error" not in without


@pytest.mark.parametrize(("axes", "equivariant"), [("rows", (1, 0)), ("columns", (0, 1))])
def test_sape2_along_one_axis_is_equivariant_to_shifts_across_it_alone(axes, equivariant):
    """Cyclic shifts of the rows (columns) move whole rows (columns) of tokens, in every layer."""
    model = small_vit(f"sape2(axes='{axes}')")
    for parameter in model.encoding.parameters():
        torch.nn.init.normal_(parameter)
    for by in ((1, 0), (-2, 0), (0, 1), (0, -3)):
        curve = evaluate(f"translation(by={by}, border='wrap')", model, with_float64_inputs(digits(6))).curves
        across = (by[0] != 0) == (equivariant[0] != 0)
        assert all((error < 1e-10) == across for error in curve["token_error"].values()), by


@pytest.mark.parametrize("border", ["zeros", "wrap", "crop"])
def test_masked_pairs_give_finite_errors(border):
    found = numbers_of(
        f"translation(by=(0, 1), border='{border}')", small_vit("lookhere"), with_float64_inputs(digits(6))
    )
    assert all(map(math.isfinite, found.values()))


def test_a_constant_classifier_is_consistent_at_chance_accuracy():
    class Constant(Classifier):
        def __init__(self):
            super().__init__()
            self.head = torch.nn.Linear(1, 10)
            torch.nn.init.zeros_(self.head.weight)

        def forward_features(self, images, positions=None):
            return images.new_zeros(len(images), 1)

    data, model = load("mnist(limit=8)"), Constant()
    shifted = numbers_of("random_shifts(max_shift=3, num_pairs=1)", model, data)
    chance = numbers_of("accuracy", model, data)["accuracy"]
    assert shifted == {"consistency": 1.0, "accuracy": chance, "worst_case_accuracy": chance} and chance < 0.15
    shuffled = numbers_of("shuffle(grid=(7, 7))", model, data)
    assert shuffled["consistency"] == 1 and shuffled["consistent_correct"] == chance


def test_a_translation_curve_consists_of_single_translations():
    model, data = random_model("learned"), digits(50)
    curves = evaluate("translation_curve(steps=(4, 1), max_images=None)", model, data).curves
    for step in (1, 4):
        one = numbers_of(f"translation(by=(0, {step}), unit='pixels')", model, data)
        assert curves["accuracy"][step] == one["accuracy"] and curves["consistency"][step] == one["consistency"]
    assert [*curves["accuracy"]] == [*curves["consistency"]] == [1, 4]

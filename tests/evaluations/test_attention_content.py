"""Heads, content and neighbors: the numbers of an inspected model as metrics."""

import math

import pytest
import torch

from tests.evaluate import evaluate
from tests.inspection.models import VIT_SPECS, build, random_data, without_content
from vitpos.inspection.content_gates import bias_content_correlation
from vitpos.inspection.model import summarize_layers
from vitpos.inspection.neighbor_attention import neighbor_attention
from vitpos.models import MODELS

DATA = random_data(20)


def test_numbers_are_means_over_layers_of_those_of_the_inspection():
    model = build(encoding="learned + sape2", qkv_scale=4.0)
    result = evaluate("attention_heads(max_images=None)", model, DATA)
    expected = summarize_layers(model, DATA, limit=None).numbers()
    for name in ("head_diversity", "head_diversity_per_image", "attention_distance"):
        assert list(result.curves[name].values()) == pytest.approx(expected[name])
        assert result.numbers[name] == pytest.approx(sum(expected[name]) / 2)
    for name, share in (("content_share", "position_share"), ("content_share_unshuffled", "position_share_unshuffled")):
        assert list(result.curves[name].values()) == pytest.approx([1 - value for value in expected[share]])
    correlation = evaluate("bias_content(max_images=None)", model, DATA)
    by_layer = bias_content_correlation(model, DATA, limit=None).mean.mean(1)
    assert list(correlation.curves["correlation"].values()) == pytest.approx(by_layer.tolist())
    assert correlation.numbers["correlation"] == pytest.approx(by_layer.mean().item())
    neighbors = evaluate("neighbor_attention(max_images=None)", model, DATA)
    found = neighbor_attention(model, DATA, limit=None)
    assert neighbors.numbers["unlike"] == pytest.approx(found.unlike.mean().item())
    assert neighbors.curves["ratio"][2] == pytest.approx((found.unlike[1] / found.like[1]).item())


def test_logits_without_content_have_a_content_share_of_zero_and_without_positions_of_one():
    fixed = evaluate("attention_heads", without_content(build(encoding="alibi")), DATA).numbers
    free = evaluate("attention_heads", build(qkv_scale=4.0), random_data(200)).numbers
    assert fixed["content_share"] == pytest.approx(0, abs=1e-6)
    assert free["content_share"] == pytest.approx(1, abs=0.02)


def test_two_images_suffice_for_a_dry_run():
    for spec in ("attention_heads", "bias_content", "neighbor_attention"):
        assert evaluate(spec, build(VIT_SPECS[2], "sape2"), random_data(2)).numbers, spec


def test_a_single_head_has_no_diversity():
    model = build("minimal(patch=(2, 3), dim=16)", "learned")
    numbers = evaluate("attention_heads", model, DATA).numbers
    assert math.isnan(numbers["head_diversity"]) and math.isfinite(numbers["content_share"])


@pytest.mark.parametrize("name", ["attention_heads", "bias_content", "neighbor_attention"])
@pytest.mark.parametrize(
    ("spec", "reason"),
    [("cnn", "no patches"), ("swin(dim=8, depths=(1, 1), heads=(1, 2), window=2, patch=2)", "windowed")],
)
def test_models_without_global_attention_get_a_reason(name, spec, reason):
    torch.manual_seed(0)
    result = evaluate(name, MODELS.build(spec, (1, 16, 16), 3), random_data(3, shape=(1, 16, 16)))
    assert not result.numbers and reason in result.reason


def test_an_encoding_that_does_not_count_by_content_gets_a_reason():
    result = evaluate("bias_content", build(encoding="relative"), DATA)
    assert not result.numbers and "sape2 and cope" in result.reason

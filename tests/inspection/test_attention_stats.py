"""Attention statistics against image-by-image computation and closed forms."""

import math

import pytest
import torch

from tests.inspection.models import (
    GRID,
    MODEL_SPECS,
    PATCH,
    build,
    normalized,
    random_data,
    without_content,
)
from vitpos.errors import InputError
from vitpos.inspection.attention_stats import (
    attention_distance,
    attention_maps,
    attention_rollout,
    head_diversity,
    mean_attention,
    patch_distances,
    uniform_attention_distance,
)
from vitpos.models import activations
from vitpos.models.activations import capture_activations
from vitpos.positions import Positions


def test_patch_distances_are_in_pixels_also_for_rectangular_patches():
    distance = patch_distances(GRID, PATCH)
    assert distance[0, 1] == 3 and distance[0, 6] == 2 and distance[0, 7] == pytest.approx(math.hypot(2, 3))
    assert distance[0, -1] == pytest.approx(math.hypot(3 * 2, 5 * 3))


def test_uniform_attention_distance_is_about_half_the_side_of_a_square():
    assert uniform_attention_distance((14, 14), (16, 16)) / 224 == pytest.approx(0.52, abs=0.005)
    attention = torch.full((2, 3, 24, 24), 1 / 24, dtype=torch.float64)
    assert attention_distance(attention, GRID, PATCH).flatten().tolist() == pytest.approx(
        [uniform_attention_distance(GRID, PATCH)] * 6
    )
    assert attention_distance(torch.eye(24), GRID, PATCH) == 0


@pytest.mark.parametrize("spec", MODEL_SPECS)
def test_mean_attention_equals_the_average_over_single_images_without_prefix_tokens(spec):
    model, data = build(spec, "learned(std=1.0)", qkv_scale=3.0), random_data(9)
    expected = torch.zeros(model.geometry.depth, model.geometry.heads, 24, 24, dtype=torch.float64)
    prefix = model.geometry.num_prefix

    def add(call):
        weights = call.weights()[0, :, prefix:, prefix:].double()
        expected[call.layer] += weights / weights.sum(-1, keepdim=True) / 9

    with torch.inference_mode():
        for image in normalized(data, 9).split(1):
            capture_activations(model, image, on_attention=add)
    torch.testing.assert_close(mean_attention(model, data), expected, atol=1e-6, rtol=1e-5)


def test_attention_distance_of_alibi_matches_its_slopes():
    model = without_content(build(encoding="alibi"))
    found = attention_distance(mean_attention(model, random_data(4)), GRID, PATCH)
    distances = Positions.from_grid(GRID).offsets()[0].norm(dim=-1).double()
    for head, slope in enumerate((2.0**-4, 2.0**-8)):
        expected = attention_distance((-slope * distances).softmax(-1), GRID, PATCH).item()
        assert found[:, head].tolist() == pytest.approx([expected] * 2, rel=1e-5)
    assert (found < uniform_attention_distance(GRID, PATCH)).all()


def test_head_diversity_is_zero_for_equal_heads_and_one_bit_for_disjoint_heads():
    one, two = torch.eye(24).double(), torch.eye(24).double().roll(1, 1)
    assert head_diversity(torch.stack([one, one])) == pytest.approx(0)
    assert head_diversity(torch.stack([one, two])) == pytest.approx(1)
    assert head_diversity(torch.stack([one, one, two])) == pytest.approx(2 / 3)
    assert head_diversity(one[None]).isnan()


def build_and_attend(spec):
    """Returns a model, images, the attention weights (B, depth, H, T, T), the prefix tokens and whether it pools CLS."""
    model, images = build(spec, "learned(std=1.0)", qkv_scale=3.0), normalized(random_data())
    calls = []
    with torch.inference_mode():
        capture_activations(model, images, on_attention=calls.append)
        weights = torch.stack([call.weights() for call in calls], 1)
    return model, images, weights, model.geometry.num_prefix, "pool='mean'" not in spec and spec.startswith("vit")


@pytest.mark.parametrize("spec", MODEL_SPECS)
def test_attention_maps_are_the_attention_of_the_pooled_token(spec):
    model, images, weights, prefix, pools_cls = build_and_attend(spec)
    row = weights[..., 0, :] if pools_cls else weights[..., prefix:, :].mean(-2)
    expected = row[..., prefix:].unflatten(-1, GRID)
    torch.testing.assert_close(attention_maps(model, images), expected[:, -1:])
    torch.testing.assert_close(attention_maps(model, images, layers=[0], heads=[-1]), expected[:, :1, -1:])


def test_layers_and_heads_out_of_range_are_rejected():
    model, images = build(), normalized(random_data())
    with pytest.raises(InputError, match=r"layers=\[2\].*choose from 0 to 1"):
        attention_maps(model, images, layers=[2])
    with pytest.raises(InputError, match="heads"):
        attention_maps(model, images, heads=[])


def test_logits_are_computed_only_for_the_requested_layers(monkeypatch):
    model, images = build(), normalized(random_data())
    computed = []
    original = activations.attention_logits  # (q, k, encoding, pos, layer, x)
    monkeypatch.setattr(activations, "attention_logits", lambda *x: computed.append(x[4]) or original(*x))
    attention_maps(model, images, layers=[1])
    assert computed == [1]


@pytest.mark.parametrize("spec", MODEL_SPECS)
def test_rollout_is_the_product_of_half_attention_and_half_identity(spec):
    model, images, weights, prefix, pools_cls = build_and_attend(spec)
    rollout = identity = torch.eye(weights.shape[-1])
    for layer in weights.mean(2).unbind(1):
        rollout = (layer / 2 + identity / 2) @ rollout
    row = rollout[:, 0] if pools_cls else rollout[:, prefix:].mean(1)
    found = attention_rollout(model, images)
    torch.testing.assert_close(found, row[:, prefix:].unflatten(1, GRID))
    assert (found.sum((1, 2)) <= 1 + 1e-6).all()

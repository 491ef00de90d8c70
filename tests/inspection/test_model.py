"""Layer summaries: every encoding gets the same numbers, reproducibly, also on other image sizes."""

import math
from dataclasses import replace

import pytest
import torch

from tests.inspection.models import (
    GRID,
    MODEL_SPECS,
    PATCH,
    VIT_SPECS,
    build,
    normalized,
    random_data,
    without_content,
)
from vitpos.data.dataset import load
from vitpos.errors import InputError
from vitpos.inspection.attention_stats import (
    attention_maps,
    attention_rollout,
    head_diversity,
    mean_attention,
    uniform_attention_distance,
)
from vitpos.inspection.content_gates import bias_content_correlation, gates_from_position
from vitpos.inspection.linear_probe import probe_positions
from vitpos.inspection.logits import logit_variance
from vitpos.inspection.model import inspect_model, summarize_layers
from vitpos.models import MODELS
from vitpos.models.activations import capture_activations
from vitpos.training.loop import fit
from vitpos.training.recipe import Recipe

ENCODING_SPECS = ["none", "cpe(layers=(0,))", "rope", "relative(std=1.0)", "sape2", "learned(std=1.0)"]


@pytest.mark.parametrize("spec", ["cnn", "resnet", "swin(dim=8, depths=(1, 1), heads=(1, 2), window=2)"])
def test_models_without_global_attention_are_rejected(spec):
    data = random_data(shape=(1, 16, 16))
    model = MODELS.build(spec, (1, 16, 16), 3)
    images = normalized(data)
    for measure in (mean_attention, logit_variance, probe_positions, bias_content_correlation, summarize_layers):
        with pytest.raises(InputError, match="needs attention over all patches of one grid"):
            measure(model, data)
    for measure in (attention_maps, attention_rollout):
        with pytest.raises(InputError, match="use a vit or minimal"):
            measure(model, images)


def test_head_diversity_per_image_includes_differences_by_content():
    model, data = build(VIT_SPECS[2], qkv_scale=4.0), random_data(12)
    found = summarize_layers(model, data)
    expected = torch.zeros(2, dtype=torch.float64)
    with torch.inference_mode():
        for image in normalized(data, 12).split(1):
            logits_by_layer = {}
            capture_activations(
                model, image, on_attention=lambda call, into=logits_by_layer: into.update({call.layer: call.logits()})
            )
            for layer, logits in logits_by_layer.items():
                expected[layer] += head_diversity(logits[0, :, 3:, 3:].double().softmax(-1)) / 12
    torch.testing.assert_close(found.head_diversity_per_image, expected, atol=1e-6, rtol=1e-5)
    numbers = found.numbers()
    for average, own in zip(numbers["head_diversity"], numbers["head_diversity_per_image"], strict=True):
        assert 0 <= average < own <= 1
    torch.testing.assert_close(found.attention, mean_attention(model, data))
    alone = logit_variance(model, data)
    torch.testing.assert_close(found.unshuffled.mean, alone.mean)
    torch.testing.assert_close(found.unshuffled.content, alone.content)
    fixed = summarize_layers(without_content(build(encoding="alibi")), random_data(6)).numbers()
    assert fixed["head_diversity_per_image"] == pytest.approx(fixed["head_diversity"], abs=1e-6), (
        "logits depend on positions alone"
    )


def test_training_without_positions_leaves_probes_at_chance():
    data = load("mnist")
    small = replace(data, train=data.train.head(600), test=data.test.head(200))
    torch.manual_seed(0)
    model = MODELS.build("vit(patch=(7, 4), dim=16, depth=2, heads=2, weight_init='xavier')", (1, 28, 28), 10)
    list(fit(model, small, Recipe(epochs=1, batch_size=50)))
    numbers = summarize_layers(model, small).numbers()
    assert max(map(abs, numbers["probe_r2"])) < 0.02 and max(map(abs, numbers["position_share"])) < 0.02
    assert max(numbers["position_share_unshuffled"]) > 0.02, "digits are centered"


@pytest.mark.parametrize("spec", [*VIT_SPECS[:3], MODEL_SPECS[-1]])
@pytest.mark.parametrize("encoding", ENCODING_SPECS)
def test_every_encoding_has_the_same_numbers(spec, encoding):
    model = build(spec, encoding)
    numbers = summarize_layers(model, random_data(20)).numbers()
    depth = model.geometry.depth
    assert len(numbers["probe_r2"]) == len(numbers["probe_error"]) == depth + 1
    for name in ("position_share", "position_share_unshuffled", "attention_distance"):
        assert len(numbers[name]) == depth
    for name in ("head_diversity", "head_diversity_per_image"):
        assert (name in numbers) == (model.geometry.heads > 1)
    flat = [x for value in numbers.values() for x in (value if isinstance(value, list) else [value])]
    assert all(type(x) is float and math.isfinite(x) for x in flat)
    assert numbers["attention_distance_uniform"] == pytest.approx(uniform_attention_distance(GRID, PATCH))


@pytest.mark.parametrize(
    "encoding", [*ENCODING_SPECS, "lookhere", "cope", "learned + rope + mjp", "decomposed", "liere"]
)
def test_images_of_another_size_and_resized_models_are_summarized(encoding):
    data, model = random_data(10, shape=(1, 12, 15)), build(VIT_SPECS[2], encoding)  # a grid of 6×5 for a model of 4×6
    for one in (model, model.resized((6, 5))):
        numbers = summarize_layers(one, data).numbers()
        assert numbers["attention_distance_uniform"] == pytest.approx(uniform_attention_distance((6, 5), PATCH))
        assert all(math.isfinite(x) for x in numbers["probe_r2"] + numbers["position_share"])
        assert attention_maps(one, normalized(data)).shape == (3, 1, 2, 6, 5)
        assert attention_rollout(one, normalized(data)).shape == (3, 6, 5)
        if "sape2" in encoding or "cope" in encoding:
            assert gates_from_position(one, normalized(data), (5, 4))[0].gates.shape == (3, 2, 6, 5)
            assert bias_content_correlation(one, data).mean.shape == (2, 2)


def test_summaries_repeat_and_leave_the_model_and_random_state_unchanged():
    model, data = build(encoding="learned + rope"), random_data(20)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    state = torch.random.get_rng_state()
    assert summarize_layers(model, data).numbers() == summarize_layers(model, data).numbers()
    assert torch.equal(state, torch.random.get_rng_state())
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize(
    ("encoding", "ways"),
    [
        ("sape2", ["along its row", "along its column"]),
        ("sape2(axes='columns')", ["along its column"]),
        ("sape2(per_axis=False)", ["along all patches"]),
        ("cope", ["along all patches"]),
    ],
)
def test_captions_of_gates_name_the_direction_of_counting(encoding, ways):
    figures = inspect_model(build(encoding=encoding), random_data(6), images=6).figures
    captions = [figure.caption for figure in figures if figure.name.startswith("gates-")]
    assert [any(f", {way}, " in caption for caption in captions) for way in ways] == [True] * len(captions)

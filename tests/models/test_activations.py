"""Captured activations are those that the model computes, and capturing leaves no hook behind."""

import math

import pytest
import torch

from tests.inspection.models import MODEL_SPECS, VIT_SPECS, build, normalized, random_data
from vitpos.models.activations import capture_activations, layer_tokens_and_logits, relative_error
from vitpos.models.attention import SelfAttention


@pytest.mark.parametrize("spec", MODEL_SPECS)
@pytest.mark.parametrize("encoding", ["none", "learned + rope", "sape2", "lookhere"])
def test_captured_tokens_and_attention_are_those_of_the_model(spec, encoding):
    model, images = build(spec, encoding), normalized(random_data())
    tokens, calls = {}, []
    with torch.inference_mode():
        expected = model.forward_tokens(images)[0]
        capture_activations(model, images, on_tokens=tokens.__setitem__, on_attention=calls.append)
        depth, prefix = model.geometry.depth, model.geometry.num_prefix
        assert list(tokens) == list(range(depth + 1)) and [call.layer for call in calls] == list(range(depth))
        assert torch.equal(tokens[0], model.embed_patches(images)[0])
        last = model.norm(tokens[depth]) if hasattr(model, "norm") else tokens[depth]
        torch.testing.assert_close(last, expected[:, prefix:])
        call, module = calls[-1], [one for one in model.modules() if isinstance(one, SelfAttention)][-1]
        v = module.qkv_heads(call.x)[2]
        output = module.proj((call.weights() @ v).transpose(1, 2).flatten(2))
        torch.testing.assert_close(output, module(call.x, call.encoding, call.pos, call.layer))
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_the_april_block_counts_as_a_layer():
    after_layers, logits = layer_tokens_and_logits(build(VIT_SPECS[3]), normalized(random_data()))
    assert len(after_layers) == len(logits) == 2


def test_an_entry_masked_on_one_side_counts_as_an_error_and_on_both_sides_as_equal():
    masked = -torch.inf
    expected = torch.tensor([[3.0, 4.0, masked, masked]]).expand(3, 4)
    values = torch.tensor([[3.0, 4.0, masked, masked], [3.0, masked, masked, masked], [3.0, 4.5, 7.0, masked]])
    rms = math.sqrt((9 + 16) / 2)
    assert relative_error(values, expected).tolist() == pytest.approx([0, rms / 5, math.hypot(0.5, rms) / 5])


def test_the_relative_error_of_nan_is_nan():
    assert relative_error(torch.tensor([[math.nan]]), torch.ones(1, 1)).isnan()

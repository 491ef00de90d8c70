"""The minimal model is its formula and takes every patch size."""

import pytest
import torch

from vitpos.models import MODELS


@pytest.mark.parametrize("patch", [2, 4, 7, 14])
def test_the_minimal_model_takes_every_patch_size(patch):
    model = MODELS.build(f"minimal(patch={patch}, residual=True)", (1, 28, 28), 10, "learned")
    assert model(torch.randn(2, 1, 28, 28)).shape == (2, 10)
    assert model.geometry.grid == (28 // patch, 28 // patch)


def test_the_minimal_model_is_its_formula():
    model = MODELS.build("minimal", (1, 28, 28), 10, "learned")
    x = torch.randn(3, 1, 28, 28)
    patches = x.unfold(2, 4, 4).unfold(3, 4, 4).reshape(3, 49, 16)
    tokens = patches @ model.project.weight.mT + model.project.bias + model.encoding.table.flatten(0, 2)
    q, k, v = (tokens @ model.attention.qkv.weight.mT + model.attention.qkv.bias).chunk(3, -1)
    mixed = ((q @ k.mT) / 8).softmax(-1) @ v
    read = (mixed @ model.attention.proj.weight.mT + model.attention.proj.bias).mean(1)
    assert torch.allclose(model(x), model.head(read), atol=1e-5)
    assert not any(isinstance(module, torch.nn.LayerNorm) for module in model.modules())


def test_positions_cost_their_table_and_the_control_costs_as_much():
    size = {
        (model, encoding): sum(p.numel() for p in MODELS.build(model, (1, 28, 28), 10, encoding).parameters())
        for model, encoding in [("minimal", "none"), ("minimal", "learned"), ("minimal(hidden_dim=170)", "none")]
    }
    plain, learned, control = size.values()
    assert learned - plain == 49 * 64
    assert abs(control - learned) < 0.001 * learned

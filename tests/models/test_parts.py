"""Stems, blocks, MLPs, norms and heads of the ViT, against their formulas and torch's modules."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from vitpos import InputError, ViT
from vitpos.models.heads import AttentionHead
from vitpos.models.parts import BLOCKS, HEADS, MLPS, NORMS, STEMS

IMAGE, SIZES = (3, 4, 12), {"patch": (2, 3), "dim": 16, "depth": 2, "heads": 2}


def randomized(module):
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(std=0.5)
    return module.double().eval()


def images(batch=2):
    return torch.randn(batch, *IMAGE, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def test_every_part_is_described():
    for registry in (STEMS, BLOCKS, MLPS, NORMS, HEADS):
        for name in registry:
            assert registry.describe(name).summary, name


def test_written_out_defaults_are_the_same_model():
    torch.manual_seed(0)
    plain = ViT(IMAGE, 5, "learned", **SIZES)
    torch.manual_seed(0)
    parts = {"stem": "plain", "block": "pre_norm(mlp='gelu', eps=1e-06)", "norm": "tokens(eps=1e-06)", "head": "linear"}
    written = ViT(IMAGE, 5, "learned", **SIZES, **parts)
    assert plain.state_dict().keys() == written.state_dict().keys()
    assert all(torch.equal(value, written.state_dict()[name]) for name, value in plain.state_dict().items())


def test_mlps_are_their_formulas():
    x = torch.randn(3, 8, dtype=torch.float64)
    activations = {"gelu": F.gelu, "gelu_tanh": lambda y: F.gelu(y, approximate="tanh")}
    activations["quick_gelu"] = lambda y: y * torch.sigmoid(1.702 * y)
    for name, activation in activations.items():
        mlp = randomized(MLPS.build(name, 8, 20))
        assert torch.allclose(mlp(x), mlp[2](activation(mlp[0](x))), atol=1e-14)
    mlp = randomized(MLPS.build("swiglu(norm=True, eps=0.1)", 8, 20))
    gate, value = (F.linear(x, mlp.fc1.weight[part], mlp.fc1.bias[part]) for part in (slice(20), slice(20, None)))
    inner = F.layer_norm(F.silu(gate) * value, (20,), mlp.norm.weight, mlp.norm.bias, 0.1)
    assert torch.allclose(mlp(x), mlp.fc2(inner), atol=1e-14)


def test_attention_pooling_is_torchs_attention_with_one_query():
    head = randomized(AttentionHead(16, 5, heads=4))
    attention = nn.MultiheadAttention(16, 4, batch_first=True).double()
    attention.load_state_dict(
        {
            "in_proj_weight": head.in_proj.weight,
            "in_proj_bias": head.in_proj.bias,
            "out_proj.weight": head.proj.weight,
            "out_proj.bias": head.proj.bias,
        }
    )
    x = torch.randn(2, 7, 16, dtype=torch.float64)
    y = attention(head.latent.expand(2, 1, -1), x[:, 2:], x[:, 2:])[0][:, 0]
    assert torch.allclose(head.pool_tokens(x, 2), y + head.mlp(head.norm(y)), atol=1e-12)
    assert head(head.pool_tokens(x, 2)).shape == (2, 5)


def test_biases_of_queries_and_values_act_as_a_full_bias_with_zeros_for_keys():
    model = randomized(ViT(IMAGE, 5, "rope", **SIZES, block="pre_norm(bias='qv')"))
    full = ViT(IMAGE, 5, "rope", **SIZES).double().eval()
    state = model.state_dict()
    for layer in range(2):
        q, v = state.pop(f"blocks.{layer}.attention.qv_bias").chunk(2)
        state[f"blocks.{layer}.attention.qkv.bias"] = torch.cat([q, torch.zeros_like(q), v])
    full.load_state_dict(state)
    assert torch.allclose(model(images()), full(images()), atol=1e-12)
    assert ViT(IMAGE, 5, **SIZES, block="pre_norm(bias='none')").blocks[0].attention.qkv.bias is None


@pytest.mark.parametrize(
    "options",
    [
        {"stem": "norm"},
        {"norm": "features", "pool": "mean"},
        {"norm": "none"},
        {"block": "pre_norm(layer_scale=True, attention_norm=True, mlp='swiglu')"},
        {"head": "cls_and_mean", "registers": 2},
        {"head": "distilled", "registers": 1},
        {"head": "attention(heads=2, prefix=True)", "registers": 1},
        {"head": "tanh"},
    ],
)
def test_every_part_takes_part_in_training(options):
    model = ViT(IMAGE, 5, "learned", **SIZES, **options)
    loss, penalty = model.forward_with_penalty(images().float())
    (loss.square().sum() + penalty).backward()
    assert loss.shape == (2, 5) and all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    assert (model.project.bias is None) == (options.get("stem") == "norm")


def test_a_norm_of_features_acts_after_pooling():
    model = randomized(ViT(IMAGE, 5, "learned", **SIZES, pool="mean", norm="features(eps=0.1)"))
    tokens = model.forward_tokens(images())[0]
    expected = F.layer_norm(tokens.mean(1), (16,), model.norm.weight, model.norm.bias, 0.1)
    assert torch.allclose(model.forward_features(images()), expected, atol=1e-12)


def test_wrong_parts_are_refused():
    with pytest.raises(InputError, match="no head 'liner'"):
        ViT(IMAGE, 5, **SIZES, head="liner")
    with pytest.raises(InputError, match="give 0 classes or another head"):
        ViT(IMAGE, 5, **SIZES, head="none")
    with pytest.raises(InputError, match="heads=3, which do not divide dim=16"):
        ViT(IMAGE, 5, **SIZES, head="attention(heads=3)")

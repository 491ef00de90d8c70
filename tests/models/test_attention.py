"""Attention is its formula, agrees with torch and Swin V2, and masked tokens have no effect."""

import math

import pytest
import torch
import torch.nn.functional as F

from vitpos.encodings import ENCODINGS
from vitpos.encodings.base import Geometry
from vitpos.models import MODELS
from vitpos.models.attention import SelfAttention, attention, double_backward_attention
from vitpos.positions import Positions

WINDOW = (2, 3)


@pytest.mark.parametrize("needs_gradient", [False, True])
@pytest.mark.parametrize("batch", [1, 2, 4])
def test_attention_is_the_formula_whatever_kernel_is_taken(needs_gradient, batch):
    q, k, v = torch.randn(3, 4, 3, 5, 8, dtype=torch.float64, requires_grad=True).unbind()
    bias = torch.randn(batch, 3, 5, 5, dtype=torch.float64, requires_grad=needs_gradient)
    expected = ((q @ k.mT) / 8**0.5 + bias.repeat(4 // batch, 1, 1, 1)).softmax(-1) @ v
    assert torch.allclose(attention(q, k, v, bias), expected)
    with double_backward_attention():
        assert torch.allclose(attention(q, k, v, bias), expected)


def test_several_heads_agree_with_torch():
    ours, theirs = SelfAttention(12, 3), torch.nn.MultiheadAttention(12, 3, batch_first=True)
    theirs.load_state_dict(
        {
            "in_proj_weight": ours.qkv.weight,
            "in_proj_bias": ours.qkv.bias,
            "out_proj.weight": ours.proj.weight,
            "out_proj.bias": ours.proj.bias,
        }
    )
    x, pos = torch.randn(2, 6, 12), Positions.from_grid((2, 3))
    none = ENCODINGS.build("none", Geometry(12, 3, 1, (2, 3)))
    assert torch.allclose(ours(x, none, pos, 0), theirs(x, x, x)[0], atol=1e-5)


def test_cosine_attention_is_swin_v2s_for_prefix_tokens_too():
    model = MODELS.build(
        "vit(patch=2, dim=32, depth=1, heads=2, registers=1, qk_norm='cosine')", (1, 6, 8), 3, "cpb"
    ).double()
    attention, encoding, pos = model.blocks[0].attention, model.encoding, Positions.from_grid((3, 4))
    x = 3 * torch.randn(2, 14, 32, dtype=torch.float64)
    q, k, v = (y.transpose(1, 2) for y in attention.qkv(x).unflatten(2, (3, 2, -1)).unbind(2))
    scale = attention.logit_scale.clamp(max=math.log(100)).exp()[:, None, None]
    bias = F.pad(encoding.bias(q, k, pos, 0), (2, 0, 2, 0))
    expected = (F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT * scale + bias).softmax(-1) @ v
    assert torch.allclose(attention(x, encoding, pos, 0), attention.proj(expected.transpose(1, 2).flatten(2)))


@pytest.mark.parametrize("spec", list(ENCODINGS))
def test_a_masked_token_has_no_effect_on_the_others(spec):
    torch.manual_seed(0)
    encoding = ENCODINGS.build(spec, Geometry(64, 4, 2, WINDOW)).eval().double()
    attention, x = SelfAttention(64, 4).double(), torch.randn(4, 6, 64, dtype=torch.float64)
    mask = torch.zeros(2, 1, 6, 6, dtype=torch.float64)
    mask[1, :, :4, 4:] = mask[1, :, 4:, :4] = -torch.inf  # in every second window the last two tokens are apart
    pos = Positions.from_grid(WINDOW)
    changed = x.clone()
    changed[1::2, 4:] += 1
    before, after = (attention(each, encoding, pos, 1, mask) for each in (x, changed))
    if "context_dependent" not in encoding.traits:
        assert torch.allclose(before[1::2, :4], after[1::2, :4], atol=1e-12)
    assert torch.equal(before[::2], after[::2]) and not torch.allclose(before[1::2, 4:], after[1::2, 4:])

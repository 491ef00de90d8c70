"""GOAT agrees with goat-attention as a whole attention layer, with and without CLS."""

import math

import pytest
import torch

from tests.encodings.inputs import CELLS, GRID, HEADS, N, build, queries_and_keys
from tests.references import peer
from vitpos.models.attention import SelfAttention, attention_logits
from vitpos.positions import Positions

WIDTH = 24


@pytest.mark.parametrize("cls", [True, False], ids=["cls", "no cls"])
@pytest.mark.parametrize(
    "options",
    ["", "rank=8", "rank=3, key_rank=5, base=40.0", "rank=5, key_bias=False"],
)
def test_attention_agrees_with_goat_attention(options, cls):
    goat = peer("goat")
    ours = build(f"goat({options})", num_prefix=int(cls), width=WIDTH, dtype=torch.float32)
    dim = HEADS * WIDTH
    theirs = goat.GoatAttention.for_vit(
        dim,
        HEADS,
        pos_rank=ours.rank,
        abs_rank=ours.key_rank,
        pos_base=ours.base,
        abs_base=ours.base,
        enable_key_bias="key_bias=False" not in options,
        has_cls_token_default=cls,
    ).eval()
    attention = SelfAttention(dim, HEADS)
    with torch.no_grad():
        for index, name in enumerate(("q_proj", "k_proj", "v_proj")):
            getattr(theirs, name).weight.copy_(attention.qkv.weight.chunk(3)[index])
            getattr(theirs, name).bias.copy_(attention.qkv.bias.chunk(3)[index])
        theirs.out_proj.load_state_dict(attention.proj.state_dict())
        theirs.lambda_sym.copy_(ours.even[1])
        theirs.lambda_asym.copy_(ours.odd[1])
        if theirs.key_bias is not None:
            first, _, last = ours.key_networks[1]
            theirs.key_bias.fc1.load_state_dict(first.state_dict())
            theirs.key_bias.fc2.weight.copy_(last.weight)
            theirs.key_bias.fc2.bias.fill_(0.7)  # cancels in the softmax
            theirs.sink_gain.copy_(ours.key_gain[1])
            if cls:
                theirs.sink_bump.copy_(ours.first_bias[1])
    x = torch.randn(2, N + cls, dim, generator=torch.Generator().manual_seed(2)) * 2
    expected = theirs(x, x, x, spatial_shape=GRID, need_weights=False)[0]
    pos = Positions.from_grid(GRID)
    torch.testing.assert_close(attention(x, ours, pos, 1), expected, atol=1e-5, rtol=1e-5)
    assert not torch.allclose(attention(x, ours, pos, 0), expected, atol=1e-2)


@pytest.mark.parametrize("split", [True, False])
def test_the_prior_is_its_formula_and_may_have_the_same_range_on_both_axes(split):
    encoding = build(f"goat(rank=5, key_bias=False, split_frequencies={split})")
    q, k = queries_and_keys()
    logits = attention_logits(q, k, encoding, Positions.from_grid(GRID), 0)
    exponents = [r / 4 for r in range(5)] if split else [0, 1 / 2, 1, 0, 1]  # three for rows, two for columns
    content = q[..., :6] @ k[..., :6].mT / math.sqrt(6)
    for head in range(HEADS):
        for i, query in enumerate(CELLS):
            for j, key in enumerate(CELLS):
                prior = 0.0
                for r, exponent in enumerate(exponents):
                    axis = 0 if r < 3 else 1
                    angle = 10000.0**-exponent * (query[axis] - key[axis])
                    prior += encoding.even[0, head, r] * math.cos(angle) + encoding.odd[0, head, r] * math.sin(angle)
                expected = content[:, head, i, j] + prior
                torch.testing.assert_close(logits[:, head, i, j], expected, atol=1e-6, rtol=0)


def test_the_bias_beside_other_encodings_is_what_the_logits_differ_by():
    encoding, pos = build("goat", num_prefix=2), Positions.from_grid(GRID)
    q, k = queries_and_keys(N + 2)
    alone, plain = attention_logits(q, k, encoding, pos, 1), q @ k.mT / 4
    torch.testing.assert_close(plain + encoding.bias(q, k, pos, 1), alone)
    slopes = build("alibi", num_prefix=2)
    both = attention_logits(q, k, encoding + slopes, pos, 1)
    torch.testing.assert_close(both - alone, attention_logits(q, k, slopes, pos, 1) - plain)


def test_a_hidden_position_gets_the_plain_product_with_prefix_tokens_too():
    encoding, pos = build("goat", num_prefix=2), Positions.from_grid(GRID)
    q, k = queries_and_keys(N + 2)
    hidden = torch.arange(N)[None] % 4 == 1
    logits, plain = attention_logits(q, k, encoding, pos.hide(hidden), 1), q @ k.mT / 4
    at = 2 + hidden[0].nonzero()[:, 0]
    torch.testing.assert_close(logits[..., at], plain[..., at])
    torch.testing.assert_close(logits[:, :, at], plain[:, :, at])
    known = torch.tensor([i for i in range(N + 2) if i not in at])
    visible = attention_logits(q, k, encoding, pos, 1)
    torch.testing.assert_close(logits[:, :, known][..., known], visible[:, :, known][..., known])


@pytest.mark.parametrize("options", ["rank=1", "rank=8", "key_rank=1"])
def test_ranks_that_do_not_fit_are_refused(options):
    with pytest.raises(ValueError, match=r"rank=.* for heads of width 16; choose 2 or more"):
        build(f"goat({options})")

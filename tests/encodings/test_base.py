"""Sums of encodings add what their parts add; geometries that cannot be served are refused."""

import pytest
import torch

from tests.encodings.inputs import GRID, build, queries_and_keys
from vitpos.encodings import ENCODINGS
from vitpos.encodings.base import Geometry, PositionEncoding, SumEncoding
from vitpos.encodings.rope import RoPE
from vitpos.models.attention import attention, attention_logits, double_backward_attention
from vitpos.models.token_embedding import embed
from vitpos.models.vit import ViT
from vitpos.positions import Positions

GEOMETRY = Geometry(dim=16, heads=2, depth=2, grid=(3, 5))


def test_a_sum_adds_what_its_parts_add():
    torch.manual_seed(0)
    both = ENCODINGS.build("learned(std=1.0) + sinusoidal", GEOMETRY)
    pos = Positions.from_grid((3, 5))
    zeros = torch.zeros(1, 15, 16)
    assert torch.allclose(embed(both, zeros, pos, 0), sum(embed(part, zeros, pos, 0) for part in both.parts), atol=1e-6)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("rope", "head width divisible by 4, not 6"),
        ("rope_mixed", "head width divisible by 4, not 6"),
        ("rope_dino", "head width divisible by 4, not 6"),
        ("rope_golden", "head width divisible by 4, not 6"),
        ("rope_spiral", "directions=4 .* divides half of the width"),
        ("string", "encoding 'string' needs a head width divisible by 4, not 6"),
        ("comrope(block_size=5)", "block_size=5 .* a divisor of the width"),
        ("pope(base=0.0)", "base=0"),
        ("goat(base=-1.0)", "base=-1"),
        ("goat", "needs heads of 8 channels or more, not 6"),
        ("goat(rank=3)", "a rank below half of the width"),
        ("liere(block_size=5)", "block_size=5 .* a divisor of the width"),
        ("cpe(layers=(7,))", "choose from 0 to 2"),
        ("cope(max_positions=1)", "2 or more"),
        ("sape2(max_positions=1)", "2 or more"),
        ("sinusoidal1d(temperature=0.0)", "temperature=0"),
        ("irpe(ratio=0.0)", "ratio=0"),
        ("cpb(hidden_dim=0)", "hidden_dim=0"),
        ("coordinate_mlp(hidden_dim=-1)", "hidden_dim=-1"),
        ("fourier(sigma=-1.0)", "sigma=-1"),
        ("learned(std=-1.0)", "std=-1"),
        ("learned(prefix_embed=True)", "without CLS or registers"),
        ("relative(prefix_bias=True)", "without CLS or registers"),
        ("rope(prefix_mode='learned')", "encoding 'rope' got .* without CLS or registers"),
    ],
)
def test_a_geometry_that_cannot_be_served_is_refused_when_the_model_is_built(spec, message):
    with pytest.raises(ValueError, match=message):
        ENCODINGS.build(spec, Geometry(dim=18, heads=3, depth=3, grid=GRID))


def test_the_sum_of_a_bias_and_a_rotation_is_their_sum():
    both = build("relative + rope + learned")
    q, k = queries_and_keys()
    v = torch.randn_like(q)
    pos = Positions.from_grid(GRID)
    relative, rope, _ = both.parts
    rotated = rope.rotate(q, k, pos, 0)
    expected = attention(*rotated, v, relative.bias(q, k, pos, 0))
    assert torch.allclose(attention(*both.rotate(q, k, pos, 0), v, both.bias(q, k, pos, 0)), expected)
    with double_backward_attention():
        assert torch.allclose(attention(*rotated, v, relative.bias(q, k, pos, 0)), expected)


def test_a_sum_of_sums_is_the_flat_sum():
    q, x, pos = torch.randn(1, 2, 15, 8), torch.randn(1, 15, 16), Positions.from_grid((3, 5))
    torch.manual_seed(0)
    flat = ENCODINGS.build("pape + rope + learned", GEOMETRY)
    nested = SumEncoding([SumEncoding(flat.parts[:2]), flat.parts[2]])
    assert nested.parts == flat.parts
    assert torch.equal(attention_logits(q, q, nested, pos, 0, x), attention_logits(q, q, flat, pos, 0, x))


def test_the_repr_of_an_encoding_shows_its_options():
    assert "base=5" in repr(RoPE(GEOMETRY, base=5)) and "Geometry" not in repr(RoPE(GEOMETRY))
    assert "base=5" in repr(ENCODINGS.build("learned + rope(base=5)", GEOMETRY))


def test_an_encoding_of_one_hook_needs_no_constructor():
    class Constant(PositionEncoding):
        def vectors(self, pos, layer, dtype):
            return torch.ones(1, pos.index.shape[1], 8, dtype=dtype)

    model = ViT((1, 8, 12), 3, Constant, patch=4, dim=8, depth=1, heads=2)
    assert model(torch.zeros(2, 1, 8, 12)).shape == (2, 3)

"""PaPE is the formula of its paper, pair by pair and parabola by parabola."""

import pytest
import torch
import torch.nn.functional as F

from tests.encodings.builders import DIM, HEADS, WIDTH, attention_call, build, positions, random
from vitpos.encodings import ENCODINGS
from vitpos.encodings.base import Geometry
from vitpos.errors import InputError
from vitpos.models.attention import SelfAttention
from vitpos.testing import check_encoding


def by_loops(encoding, h, pos, layer):
    """The bias (H, N, N) for tokens h (N, D): Σ_m [−a (u·δ)² + b (u·δ)]/√d."""
    coords, count = pos.coords[0].double(), pos.index.shape[1]
    bias = torch.zeros(HEADS, count, count, dtype=torch.float64)
    for head in range(HEADS):
        for i in range(count):
            a = F.softplus(h[i] @ encoding.curvature[layer].unflatten(1, (HEADS, -1))[:, head])  # (M,)
            for j in range(count):
                offset = coords[i] - coords[j]
                if encoding.directions is None:
                    value = -a[0] * (encoding.scales[layer, head] * offset).square().sum()
                else:
                    along = encoding.directions[layer, head] @ offset  # (M,)
                    b = h[i] @ encoding.slope[layer, :, head]
                    value = (-a * along**2 + b * along).sum()
                bias[head, i, j] = value * WIDTH**-0.5
    return bias


@pytest.mark.parametrize("kind", ["whole", "hidden", "finer"])
@pytest.mark.parametrize("options", ["", "parabolas=3", "rotation_invariant=True"])
def test_pape_is_its_formula(options, kind):
    encoding, pos = build(f"pape({options})"), positions(kind)
    x = random(2, pos.index.shape[1], DIM)
    ours = encoding.token_bias(x, pos, 1)
    for image in range(2):
        expected = by_loops(encoding, x[image], pos, 1)
        assert ((ours[image] - expected).abs() / (1 + expected.abs())).max() < 1e-6


def test_attention_adds_the_bias_among_patches_with_known_positions():
    torch.manual_seed(2)
    attention, encoding, pos = SelfAttention(DIM, HEADS).double(), build("pape(parabolas=3)"), positions("hidden")
    x = random(1, 1 + pos.index.shape[1], DIM)
    q, k, _ = attention.qkv_heads(x)
    expected = q @ k.mT * WIDTH**-0.5
    pairs = pos.known[0][:, None] & pos.known[0]
    expected[0, :, 1:, 1:] += by_loops(encoding, x[0, 1:], pos, 0) * pairs
    assert (attention_call(attention, x, encoding, pos, 0).logits() - expected).abs().max() < 1e-6


def test_without_directions_the_bias_depends_on_the_distance_alone():
    encoding, pos = build("pape(rotation_invariant=True)"), positions("whole")
    x = random(1, 1, DIM).expand(1, pos.index.shape[1], DIM)
    bias, distance = encoding.token_bias(x, pos, 0)[0], pos.offsets()[0].double().norm(dim=-1)
    for value in distance.unique():
        assert bias[:, distance == value].std(1).max() < 1e-9


@pytest.mark.parametrize("options", [{"rotation_invariant": True}, {"parabolas": 2}])
def test_the_options_keep_the_contract(options):
    check_encoding("pape", **options)


def test_far_from_the_center_float32_stays_accurate():
    encoding, pos = build("pape", dtype=torch.float32), positions("whole").shift((40.0, 40.0))
    x = random(1, pos.index.shape[1], DIM, dtype=torch.float32)
    expected = by_loops(encoding.double(), x[0].double(), pos, 0)
    ours = encoding.float().token_bias(x, pos, 0)[0].double()
    assert ((ours - expected).abs() / (1 + expected.abs())).max() < 1e-3


def test_a_number_of_parabolas_that_has_no_effect_is_refused():
    with pytest.raises(InputError, match="parabolas=3 with rotation_invariant=True"):
        ENCODINGS.build("pape(parabolas=3, rotation_invariant=True)", Geometry(32, 2, 1, (2, 3)))

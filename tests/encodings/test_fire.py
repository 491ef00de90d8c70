"""FIRE is the formula of its paper, with distances on a grid."""

import math

import pytest
import torch

from tests.encodings.builders import GEOMETRY, GRID, HEADS, N, build, positions, random
from vitpos.encodings import ENCODINGS
from vitpos.encodings.base import Geometry
from vitpos.models import MODELS
from vitpos.positions import Positions
from vitpos.testing import check_encoding


def by_loops(encoding, pos, layer):
    """The bias (H, N, N), pair by pair."""
    layer = 0 if encoding.share_layers else layer
    axes = encoding.distance == "per_axis"
    coords, known = pos.coords[0].tolist(), pos.known[0].tolist()
    first, _, last = encoding.networks[layer]
    c = abs(encoding.c[layer].item())
    spans = [side - 1 for side in GRID]
    longest = spans if axes else [math.hypot(*spans)]
    limits = [abs(f) * s for f, s in zip(encoding.threshold_factor[layer].tolist(), longest, strict=True)]

    def distances(i, j):
        offset = [p - o for p, o in zip(coords[i], coords[j], strict=True)]
        return offset if axes else [math.hypot(*offset)]

    count = len(coords)
    bias = torch.zeros(HEADS, count, count, dtype=torch.float64)
    for i in range(count):
        for j in range(count):
            inputs = []
            for axis, at in enumerate(distances(i, j)):
                farthest = max(abs(distances(i, n)[axis]) if known[n] else 0 for n in range(count))
                scale = math.log(c * max(limits[axis], farthest) + 1) + 1e-6
                inputs.append(math.copysign(math.log(c * abs(at) + 1), at) / scale)
            hidden = torch.relu(first.weight @ torch.tensor(inputs, dtype=torch.float64) + first.bias)
            bias[:, i, j] = last.weight @ hidden + last.bias
    return bias


@pytest.mark.parametrize("kind", ["whole", "hidden", "finer"])
@pytest.mark.parametrize("factor", [0.5, 2.0])
@pytest.mark.parametrize("options", ["", "distance='per_axis', hidden_dim=8", "share_layers=True"])
def test_fire_is_its_formula(options, factor, kind):
    encoding, pos = build(f"fire({options})"), positions(kind)
    torch.nn.init.constant_(encoding.threshold_factor, -factor)
    q = random(2, HEADS, pos.index.shape[1], 16)
    for layer in range(2):
        assert (encoding.bias(q, q, pos, layer)[0] - by_loops(encoding, pos, layer)).abs().max() < 1e-6


def test_on_a_sequence_it_is_the_code_of_the_paper():
    """On one row the last cell is as far from its first key as in a causal sequence."""
    count = 9
    encoding = build("fire", Geometry(32, 2, 2, (1, count)))
    torch.nn.init.constant_(encoding.threshold_factor, 0.25)
    q = random(1, HEADS, count, 16)
    ours = encoding.bias(q, q, Positions.from_grid((1, count)), 0)[0, :, -1]
    at = torch.arange(count, dtype=torch.float64)
    scale = torch.log((encoding.c[0] * max(count - 1, 0.25 * (count - 1))).abs() + 1) + 1e-6
    inputs = torch.log((encoding.c[0] * (count - 1 - at)).abs() + 1) / scale
    assert (ours - encoding.networks[0](inputs[:, None]).mT).abs().max() < 1e-6


@pytest.mark.parametrize("options", [{"distance": "per_axis"}, {"share_layers": True}])
def test_the_options_keep_the_contract(options):
    check_encoding("fire", **options)


@pytest.mark.parametrize("options", ["", "distance='per_axis'", "share_layers=True"])
def test_every_parameter_has_a_gradient_at_first(options):
    torch.manual_seed(0)
    model = MODELS.build(
        "vit(patch=2, dim=32, depth=2, heads=2, pool='mean', registers=1)", (1, 6, 10), 3, f"fire({options})"
    )
    model(torch.randn(2, 1, 6, 10)).square().sum().backward()
    assert all(parameter.grad.any() for parameter in model.encoding.parameters())


@pytest.mark.parametrize("distance", ["euclidean", "per_axis"])
def test_the_bias_is_translation_invariant_while_no_patch_is_farther_than_the_threshold(distance):
    encoding = ENCODINGS.build(f"fire(distance='{distance}')", GEOMETRY)
    q = random(1, HEADS, N, 16, dtype=torch.float32)
    bias = encoding.bias(q, q, Positions.from_grid(GRID), 0)[0].unflatten(2, GRID).unflatten(1, GRID)
    assert torch.allclose(bias[:, :2, :4, :2, :4], bias[:, 1:, 1:, 1:, 1:], atol=1e-6)

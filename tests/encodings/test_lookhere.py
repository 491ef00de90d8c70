"""LookHere is its description and directs as many heads as the release."""

import math

import pytest

from tests.encodings.inputs import CELLS, GRID, build, queries_and_keys
from vitpos.encodings import ENCODINGS
from vitpos.encodings.base import Geometry
from vitpos.positions import Positions


@pytest.mark.parametrize("view", [180, 90, 45])
def test_lookhere_is_its_description(view):
    heads, depth = 12, 3
    encoding = ENCODINGS.build(f"lookhere(field_of_view={view})", Geometry(96, heads, depth, GRID))
    q, k = queries_and_keys(heads=heads, width=8)
    fields = {  # of an offset down and to the right, in order of the heads
        180: [lambda d, r: r >= 0, lambda d, r: d >= 0, lambda d, r: r <= 0, lambda d, r: d <= 0],
        90: [
            lambda d, r: d >= 0 and r >= 0,
            lambda d, r: d >= 0 and r <= 0,
            lambda d, r: d <= 0 and r <= 0,
            lambda d, r: d <= 0 and r >= 0,
        ],
        45: [
            lambda d, r: 0 <= d <= r,
            lambda d, r: 0 <= r <= d,
            lambda d, r: 0 <= -r <= d,
            lambda d, r: 0 <= d <= -r,
            lambda d, r: 0 <= -d <= -r,
            lambda d, r: 0 <= -r <= -d,
            lambda d, r: 0 <= r <= -d,
            lambda d, r: 0 <= -d <= r,
        ],
    }[view]
    for layer, decay in enumerate((1.5, 1.0, 0.5)):
        bias = encoding.bias(q, k, Positions.from_grid(GRID), layer)[0]
        for head in range(heads):
            for i, a in enumerate(CELLS):
                for j, b in enumerate(CELLS):
                    down, right = b[0] - a[0], b[1] - a[1]
                    sees = head >= 8 or fields[head % len(fields)](down, right)
                    slope = 4.0 ** -(head - 7) if head >= 8 else 0.5 if head < len(fields) else 0.25
                    expected = -decay * slope * math.dist(a, b) if sees else -math.inf
                    assert bias[head, i, j] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(("heads", "directed"), [(6, 4), (12, 8), (16, 8), (3, 2)])
def test_lookhere_directs_as_many_heads_as_the_release(heads, directed):
    encoding = ENCODINGS.build("lookhere", Geometry(8 * heads, heads, 1, GRID))
    q, k = queries_and_keys(heads=heads, width=8)
    blocked = encoding.bias(q, k, Positions.from_grid(GRID), 0)[0].isinf().flatten(1).any(1)
    assert blocked.tolist() == [head < directed for head in range(heads)]


def test_the_bias_of_a_token_with_itself_is_zero():
    bias = build("lookhere").bias(*queries_and_keys(), Positions.from_grid(GRID), 0)
    assert (bias.diagonal(dim1=2, dim2=3) == 0).all()

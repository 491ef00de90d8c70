"""ALiBi is its formula."""

import math

import pytest

from tests.encodings.inputs import CELLS, GRID, build, queries_and_keys
from vitpos.encodings import ENCODINGS
from vitpos.encodings.base import Geometry
from vitpos.positions import Positions


@pytest.mark.parametrize("heads", [2, 6, 12])
def test_alibi_is_its_formula(heads):
    encoding = ENCODINGS.build("alibi", Geometry(48, heads, 2, GRID))
    q, k = queries_and_keys(heads=heads, width=48 // heads)
    bias = encoding.bias(q, k, Positions.from_grid(GRID), 0)
    for head in range(heads):
        for i, a in enumerate(CELLS):
            for j, b in enumerate(CELLS):
                assert abs(bias[0, head, i, j] + 2 ** (-8 * (head + 1) / heads) * math.dist(a, b)) < 1e-6


def test_the_bias_of_a_token_with_itself_is_zero():
    bias = build("alibi").bias(*queries_and_keys(), Positions.from_grid(GRID), 0)
    assert (bias.diagonal(dim1=2, dim2=3) == 0).all()

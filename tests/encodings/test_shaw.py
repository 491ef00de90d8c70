"""Shaw's vectors on keys and values are the equations of the paper, pair by pair."""

import math

import pytest
import torch

from tests.encodings.builders import HEADS, PREFIX, WIDTH, attention_error, build, positions
from vitpos.encodings import ENCODINGS
from vitpos.encodings.base import Geometry
from vitpos.errors import InputError
from vitpos.testing import check_encoding


def vector(table, offset, limit):
    """The entry of a table ((2k + 1)², d) at a clipped offset; between whole offsets the four around are interpolated."""
    row, column = (max(-limit, min(limit, at)) + limit for at in offset)
    total = torch.zeros(WIDTH, dtype=torch.float64)
    for r in (math.floor(row), math.floor(row) + 1):
        for c in (math.floor(column), math.floor(column) + 1):
            weight = (1 - abs(row - r)) * (1 - abs(column - c))
            if weight > 0:
                total = total + weight * table[r * (2 * limit + 1) + c]
    return total


def by_loops(attention, encoding, x, pos):
    """Attention of one image (T, D), pair by pair: e_ij = q_i·(k_j + a_ij)/√d and z_i = Σ_j α_ij (v_j + b_ij)."""
    qkv = attention.qkv(x).unflatten(1, (3, HEADS, WIDTH))
    coords, known = pos.coords[0].tolist(), pos.known[0].tolist()
    limit = encoding.max_distance
    out = torch.zeros(len(x), HEADS, WIDTH, dtype=torch.float64)
    for head in range(HEADS):
        q, k, v = (qkv[:, part, head] for part in range(3))
        for i in range(len(x)):
            keys, values = list(k), list(v)
            for j in range(PREFIX, len(x)):
                a, b = i - PREFIX, j - PREFIX
                if i >= PREFIX and known[a] and known[b]:
                    offset = [p - o for p, o in zip(coords[a], coords[b], strict=True)]
                    if encoding.key_table is not None:
                        keys[j] = keys[j] + vector(encoding.key_table[1], offset, limit)
                    if encoding.value_table is not None:
                        values[j] = values[j] + vector(encoding.value_table[1], offset, limit)
            weights = (torch.stack(keys) @ q[i] * WIDTH**-0.5).softmax(0)
            out[i, head] = weights @ torch.stack(values)
    return attention.proj(out.flatten(1))


@pytest.mark.parametrize("kind", ["whole", "hidden", "finer"])
@pytest.mark.parametrize("options", ["", "max_distance=1", "keys=False", "values=False, max_distance=2"])
def test_shaw_is_its_equations(options, kind):
    assert attention_error(build(f"shaw({options})"), positions(kind), by_loops) < 1e-6


@pytest.mark.parametrize("options", [{"keys": False}, {"values": False}, {"max_distance": 1}])
def test_the_options_keep_the_contract(options):
    check_encoding("shaw", **options)


def test_without_values_attention_takes_the_fast_path():
    assert "added_values" not in build("shaw(values=False)").hooks and "bias" not in build("shaw(keys=False)").hooks
    assert {"bias", "added_values"} <= build("shaw").hooks


@pytest.mark.parametrize("options", ["max_distance=0", "keys=False, values=False"])
def test_options_that_do_nothing_are_refused(options):
    with pytest.raises(InputError, match="shaw"):
        ENCODINGS.build(f"shaw({options})", Geometry(32, 2, 1, (2, 3)))

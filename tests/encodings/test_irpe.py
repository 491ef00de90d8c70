"""iRPE on queries, keys and values is the formula of the published code, pair by pair."""

import math

import pytest
import torch

from tests.encodings.builders import HEADS, PREFIX, WIDTH, attention_error, build, positions, random
from vitpos.encodings import ENCODINGS
from vitpos.encodings.base import Geometry
from vitpos.errors import InputError
from vitpos.positions import Positions
from vitpos.testing import check_encoding


def bucket(offset, ratio=1.9):
    """The index of f(Δrow), f(Δcolumn) among 7×7 buckets (eq. 18 of the paper, truncated as in the published code)."""

    def of_axis(x):
        if abs(x) <= ratio:
            return round(x)
        far = round(ratio + ratio * math.log(abs(x) / ratio) / math.log(8))
        return int(math.copysign(min(2 * ratio, far), x))

    side = 2 * int(2 * ratio) + 1
    return (of_axis(offset[0]) + side // 2) * side + of_axis(offset[1]) + side // 2


def by_loops(attention, encoding, x, pos):
    """Attention of one image (T, D): logits plus q_i·r^K_ij/√d plus k_j·r^Q_ji/√d, values plus r^V_ij among patches."""
    qkv = attention.qkv(x).unflatten(1, (3, HEADS, WIDTH))
    coords, known = pos.coords[0].tolist(), pos.known[0].tolist()
    out = torch.zeros(len(x), HEADS, WIDTH, dtype=torch.float64)
    for head in range(HEADS):
        q, k, v = (qkv[:, part, head] for part in range(3))
        logits, values = q @ k.mT * WIDTH**-0.5, v.expand(len(x), -1, -1).clone()
        for i in range(len(x)):
            for j in range(len(x)):
                a, b = i - PREFIX, j - PREFIX
                patches = a >= 0 and b >= 0
                if patches and not (known[a] and known[b]):
                    continue
                here = there = 49
                if patches:
                    offset = [p - o for p, o in zip(coords[a], coords[b], strict=True)]
                    here, there = bucket(offset), bucket([-o for o in offset])
                if "k" in encoding.on:
                    logits[i, j] += q[i] @ encoding.table[1, here] * WIDTH**-0.5
                if "q" in encoding.on:
                    logits[i, j] += k[j] @ encoding.query_table[1, there] * WIDTH**-0.5
                if "v" in encoding.on and patches:
                    values[i, j] += encoding.value_table[1, here]
        out[:, head] = torch.einsum("ij,ijd->id", logits.softmax(-1), values)
    return attention.proj(out.flatten(1))


@pytest.mark.parametrize("kind", ["whole", "hidden", "finer"])
@pytest.mark.parametrize("on", ["k", "q", "v", "qk", "qv", "kv", "qkv"])
def test_irpe_on_queries_keys_and_values_is_its_formula(on, kind):
    assert attention_error(build(f"irpe(on='{on}')"), positions(kind), by_loops) < 1e-6


@pytest.mark.parametrize("on", ["q", "v"])
def test_the_options_keep_the_contract(on):
    check_encoding("irpe", on=on)


def test_only_the_hooks_with_a_table_are_used():
    hooks = {on: build(f"irpe(on='{on}')").hooks & {"bias", "added_values"} for on in ("k", "v", "qkv")}
    assert hooks == {"k": {"bias"}, "v": {"added_values"}, "qkv": {"bias", "added_values"}}


def test_a_bias_has_no_vectors_to_put_on_values():
    with pytest.raises(InputError, match="on='v' with mode='bias'"):
        ENCODINGS.build("irpe(mode='bias', on='v')", Geometry(32, 2, 1, (2, 3)))


@pytest.mark.parametrize("mode", ["contextual", "bias"])
def test_irpe_is_its_formula_with_a_bucket_for_prefix_tokens(mode):
    geometry = Geometry(32, 2, 2, (4, 20), num_prefix=1)
    encoding = build(f"irpe(mode='{mode}')", geometry)
    q, k = random(2, 2, 2, 81, 16).unbind()
    bias = encoding.bias(q, k, Positions.from_grid((4, 20)), 1)

    def bucket(x):
        if abs(x) <= 1.9:
            return x
        far = round(1.9 + 1.9 * math.log(abs(x) / 1.9) / math.log(15.2 / 1.9))
        return int(math.copysign(min(3.8, far), x))

    at = [None, *((row, column) for row in range(4) for column in range(20))]
    for i in range(0, 81, 7):
        for j in range(81):
            index = 49
            if at[i] and at[j]:
                index = (bucket(at[i][0] - at[j][0]) + 3) * 7 + bucket(at[i][1] - at[j][1]) + 3
            for head in range(2):
                if mode == "contextual":
                    expected = q[0, head, i] / 4 @ encoding.table[1, index]
                else:
                    expected = encoding.table[1, head, index]
                assert abs(bias[0, head, i, j] - expected) < 1e-6

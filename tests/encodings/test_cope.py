"""CoPE is its formula and, if causal, agrees with x-transformers."""

import torch

from tests.encodings.inputs import GRID, N, build, interpolate, queries_and_keys
from tests.references import peer
from vitpos.positions import Positions


def test_causal_counting_agrees_with_x_transformers():
    module = peer("x_transformers.x_transformers")
    theirs = module.CoPE(16, 2, max_pos=6)
    encoding = build("cope(max_positions=6, causal=True)", dtype=torch.float32)
    with torch.no_grad():
        theirs.pos_emb.copy_(encoding.table[0])
    q, k = queries_and_keys(dtype=torch.float32)
    logits = q @ k.mT / 4
    future = torch.ones(N, N, dtype=torch.bool).triu(1)
    expected = theirs(q, logits.masked_fill(future, -torch.finfo(logits.dtype).max))
    ours = encoding.bias(q, k, Positions.from_grid(GRID), 0)
    past = ~future
    assert (ours - expected)[..., past].abs().max() < 1e-5


def test_cope_among_patches_is_its_formula():
    encoding = build("cope(max_positions=5)")
    q, k = queries_and_keys(batch=1, heads=1)
    gates = torch.sigmoid(q[0, 0] @ k[0, 0].mT / 4)
    bias = encoding.bias(q, k, Positions.from_grid(GRID), 1)[0, 0]
    for i in range(N):
        for j in range(N):
            count = gates[i, j:].sum().item()
            assert abs(bias[i, j] - q[0, 0, i] @ interpolate(encoding.table[1], count)) < 1e-6

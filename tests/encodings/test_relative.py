"""The relative bias agrees with timm, with and without CLS."""

import torch

from tests.encodings.inputs import GRID, N, build, queries_and_keys
from tests.references import peer
from vitpos.positions import Positions


def test_relative_bias_agrees_with_timm():
    timm = peer("timm.layers.pos_embed_rel")
    theirs = timm.RelPosBias(window_size=GRID, num_heads=2)
    encoding = build("relative", dtype=torch.float32)
    with torch.no_grad():
        theirs.relative_position_bias_table.copy_(encoding.table[1].flatten(0, 1))
    q, k = queries_and_keys(dtype=torch.float32)
    assert (encoding.bias(q, k, Positions.from_grid(GRID), 1) - theirs.get_bias()).abs().max() < 1e-5


def test_relative_bias_with_cls_agrees_with_timm():
    timm = peer("timm.layers.pos_embed_rel")
    theirs = timm.RelPosBias(window_size=GRID, num_heads=2, prefix_tokens=1)
    encoding = build("relative(prefix_bias=True)", num_prefix=1, dtype=torch.float32)
    with torch.no_grad():  # timm: CLS to patch, patch to CLS, CLS to CLS stand behind the offsets
        theirs.relative_position_bias_table.copy_(torch.cat([encoding.table[0].flatten(0, 1), encoding.prefix_bias[0]]))
    q, k = queries_and_keys(dtype=torch.float32, tokens=N + 1)
    assert (encoding.bias(q, k, Positions.from_grid(GRID), 0) - theirs.get_bias()).abs().max() < 1e-5

"""RoPE with mixed frequencies agrees with timm."""

import torch

from tests.encodings.inputs import GRID, build, queries_and_keys
from tests.references import peer
from vitpos.positions import Positions


def test_mixed_rotation_agrees_with_timm():
    timm = peer("timm.layers.pos_embed_sincos")
    encoding = build("rope_mixed", dtype=torch.float32)
    theirs = timm.RotaryEmbeddingMixed(32, depth=2, num_heads=2, feat_shape=list(GRID), grid_indexing="xy")
    with torch.no_grad():
        column_row = encoding.mixed_frequencies.flip(2)  # (depth, H, 2, d/2), column first
        theirs.freqs.copy_(column_row.permute(2, 0, 1, 3).reshape(theirs.freqs.shape))
    q, _ = queries_and_keys(dtype=torch.float32)
    for layer in range(2):
        table = theirs.get_embed(list(GRID))[layer]
        expected = timm.apply_rot_embed_cat(q, table)
        ours = encoding.rotate(q, q, Positions.from_grid(GRID), layer)[0]
        assert (ours - expected).abs().max() < 1e-5

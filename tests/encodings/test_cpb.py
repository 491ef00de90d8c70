"""The continuous position bias agrees with timm's Swin V2."""

import torch

from tests.encodings.inputs import GRID, build, queries_and_keys
from tests.references import peer
from vitpos.positions import Positions


def test_the_bias_of_swin_v2_agrees_with_timm():
    timm = peer("timm.layers.pos_embed_rel")
    theirs = timm.RelPosMlp(window_size=GRID, num_heads=2, hidden_dim=512, mode="swin").eval()
    encoding = build("cpb", dtype=torch.float32)
    ours = encoding.networks[1]
    with torch.no_grad():
        theirs.mlp.fc1.weight.copy_(ours[0].weight), theirs.mlp.fc1.bias.copy_(ours[0].bias)
        theirs.mlp.fc2.weight.copy_(ours[2].weight)
        if theirs.mlp.fc2.bias is not None:
            theirs.mlp.fc2.bias.zero_()
    q, k = queries_and_keys(dtype=torch.float32)
    assert (encoding.bias(q, k, Positions.from_grid(GRID), 1) - theirs.get_bias()).abs().max() < 1e-5

"""The learned table: size, initialization, and exchange with timm."""

import math

import torch

from tests.references import peer
from vitpos.encodings import ENCODINGS
from vitpos.encodings.base import Geometry
from vitpos.models import MODELS


def test_a_learned_table_starts_small_and_is_as_large_as_the_grid():
    learned = ENCODINGS.build("learned", Geometry(dim=64, heads=1, depth=1, grid=(20, 30)))
    assert learned.table.shape == (1, 20, 30, 64)
    assert math.isclose(learned.table.std().item(), 0.02, rel_tol=0.05)


def test_uniform_initial_values_have_the_same_spread_and_no_tails():
    torch.manual_seed(0)
    normal, uniform = (
        ENCODINGS.build(spec, Geometry(grid=(20, 30), dim=64, heads=4, depth=2, num_prefix=1))
        for spec in ("learned(std=0.5, prefix_embed=True)", "learned(std=0.5, prefix_embed=True, init='uniform')")
    )
    for encoding in (normal, uniform):
        assert abs(encoding.table.std() - 0.5) < 0.01 and abs(encoding.table.mean()) < 0.01
    assert uniform.table.abs().max() <= 0.5 * 3**0.5 + 1e-6 < normal.table.abs().max()
    assert 0 < uniform.prefix_table.abs().max() <= 0.5 * 3**0.5 + 1e-6


def test_a_timm_table_with_a_cls_row_goes_in_and_comes_out_exactly():
    vision = peer("timm.models.vision_transformer")
    theirs = vision.VisionTransformer(
        img_size=(8, 12), patch_size=2, embed_dim=32, depth=2, num_heads=2, num_classes=5
    ).eval()
    ours = MODELS.build("vit(patch=2, dim=32, depth=2, heads=2)", (3, 8, 12), 5, "learned(prefix_embed=True)").eval()
    with torch.no_grad():
        theirs.pos_embed.normal_()
        ours.encoding.prefix_table.copy_(theirs.pos_embed[0, :1])
        ours.encoding.table.copy_(theirs.pos_embed[0, 1:].unflatten(0, (4, 6))[None])
        ours.prefix_tokens.copy_(theirs.cls_token[0])
        ours.project.weight.copy_(theirs.patch_embed.proj.weight.flatten(1))
        ours.project.bias.copy_(theirs.patch_embed.proj.bias)
        for mine, block in zip(ours.blocks, theirs.blocks, strict=True):
            pairs = (mine.norm1, block.norm1), (mine.norm2, block.norm2)
            pairs += (mine.attention.qkv, block.attn.qkv), (mine.attention.proj, block.attn.proj)
            pairs += (mine.mlp[0], block.mlp.fc1), (mine.mlp[2], block.mlp.fc2)
            for a, b in (*pairs, (ours.norm, theirs.norm), (ours.head, theirs.head)):
                a.load_state_dict(b.state_dict())
    images = torch.randn(2, 3, 8, 12)
    assert torch.allclose(ours(images), theirs(images), atol=1e-5)
    back = torch.cat([ours.encoding.prefix_table, ours.encoding.table.flatten(0, 2)])[None]
    assert torch.equal(back, theirs.pos_embed)

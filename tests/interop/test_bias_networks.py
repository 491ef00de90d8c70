"""Networks from offset to bias."""

import json

import pytest
import torch

from tests.interop.checkpoints import GRID, HEADS, random, save, swin_index, vit
from tests.references import peer
from vitpos.interop.checkpoint import read_checkpoint


def swin_v2(**options):
    """A small Swin-v2 of timm with patches of 2 pixels, and the bias tables of its two stages."""
    swin = peer("timm.models.swin_transformer_v2").SwinTransformerV2
    torch.manual_seed(0)
    model = swin(patch_size=2, embed_dim=8, depths=(1, 1), num_heads=(2, 4), **options)
    attentions = [stage.blocks[0].attn for stage in model.layers]
    return model, [16 * attention.cpb_mlp(attention.relative_coords_table)[0].sigmoid() for attention in attentions]


CPB = "layers.0.blocks.0.attn."
NETWORK = {"0.weight": (8, 2), "0.bias": (8,), "2.weight": (HEADS, 8)}


def test_bias_networks_of_swin_v2_are_evaluated_if_their_window_is_known(tmp_path):
    model, tables = swin_v2(img_size=(24, 40), window_size=(3, 5))
    path = save(tmp_path / "x.pth", model.state_dict())
    assert read_checkpoint(path).biases == {} and read_checkpoint(path).grid is None
    found = read_checkpoint(path, grid=(3, 5))
    assert list(found.biases) == ["layers.0.blocks.0.attn.cpb_mlp", "layers.1.blocks.0.attn.cpb_mlp"]
    for mine, theirs in zip(found.biases.values(), tables, strict=True):
        torch.testing.assert_close(mine, theirs)
    assert list(found.encodings) == ["cpb"] and found.encodings["cpb"].endswith(
        "evaluated in 2, the first for 3x5 positions and 2 heads"
    )
    index = {CPB + "relative_position_index": swin_index((3, 5))}
    found = read_checkpoint(save(path, model.state_dict() | index))
    assert (found.grid, found.grid_source) == ((3, 5), CPB + "relative_position_index") and len(found.biases) == 1
    attention = model.layers[0].blocks[0].attn
    index_ = attention.relative_position_index.view(-1)
    mine = found.biases[CPB + "cpb_mlp"].flatten(0, 1)[index_].unflatten(0, (15, 15)).permute(2, 0, 1)
    logits = []
    attention.softmax.register_forward_pre_hook(lambda module, inputs: logits.append(inputs[0]))
    with torch.no_grad():
        attention.qkv.weight[:16] = 0  # no content
        attention(random(1, 15, 8))
    torch.testing.assert_close(logits[0][0], mine)


def test_stored_offsets_and_pretraining_windows_of_swin_v2_are_used(tmp_path):
    model, tables = swin_v2(img_size=(16, 16), window_size=8, pretrained_window_sizes=(4, 3))
    assert [tuple(table.shape) for table in tables] == [(15, 15, 2), (7, 7, 4)], "the second stage has 4x4 positions"
    stored = {CPB + "relative_coords_table": model.layers[0].blocks[0].attn.relative_coords_table}
    save(path := tmp_path / "model.safetensors", model.state_dict() | stored)
    found = read_checkpoint(path)
    assert (found.grid, found.grid_source) == ((8, 8), CPB + "relative_coords_table") and len(found.biases) == 1
    torch.testing.assert_close(found.biases[CPB + "cpb_mlp"], tables[0])
    save(path, model.state_dict())
    config = {"image_size": 16, "window_size": 8, "pretrained_window_sizes": [4, 3]}
    for written in (config, {"model_args": config}):
        (tmp_path / "config.json").write_text(json.dumps(written | {"image_size": 16}))
        found = read_checkpoint(path)
        assert found.grid == (8, 8)
        for mine, theirs in zip(found.biases.values(), tables, strict=True):
            torch.testing.assert_close(mine, theirs)
    (tmp_path / "config.json").write_text('{"window_size": 60000}')
    assert read_checkpoint(path).biases == {}, "too many offsets to evaluate"


@pytest.mark.parametrize("kind", ["cr", "swin"])
def test_bias_networks_of_timm_are_evaluated(tmp_path, kind):
    relpos = peer("timm.layers").RelPosMlp(window_size=GRID, num_heads=HEADS, mode=kind).eval()
    state = vit() | {f"blocks.0.attn.rel_pos.{name}": tensor for name, tensor in relpos.state_dict().items()}
    del state["pos_embed"]
    save(tmp_path / "model.safetensors", state)
    (tmp_path / "config.json").write_text('{"image_size": [6, 20]}')
    found = read_checkpoint(tmp_path)
    table = found.biases["blocks.0.attn.rel_pos.mlp"]
    torch.testing.assert_close(table.flatten(0, 1)[swin_index(GRID)].permute(2, 0, 1), relpos.get_bias()[0])
    assert found.grid == GRID


def test_a_network_that_is_skipped_may_hold_nan(tmp_path):
    skipped = {f"neck.cpb_mlp.{name}": random(*shape) for name, shape in NETWORK.items()}
    skipped["neck.cpb_mlp.0.weight"][0] = torch.nan
    assert read_checkpoint(save(tmp_path / "x.pth", vit() | skipped), grid=GRID).biases == {}

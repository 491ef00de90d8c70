"""Bias tables, windows, and networks from offset to bias."""

import json

import pytest
import torch

from tests.interop.checkpoints import GRID, HEADS, random, save, swin_index, vit
from tests.references import peer
from vitpos.errors import InputError
from vitpos.interop.checkpoint import read_checkpoint


def shape(tensor):
    return None if tensor is None else tuple(tensor.shape)


def test_bias_tables_get_the_shape_of_their_offsets(tmp_path):
    table = random(5 * 9 + 3, HEADS)
    state = vit() | {f"blocks.{layer}.attn.relative_position_bias_table": table for layer in (0, 1)}
    del state["pos_embed"]
    path = save(tmp_path / "x.pth", state)
    with pytest.raises(InputError, match=r"has 45 offsets, .*: 3x5, 5x3, 2x8, 8x2"):
        read_checkpoint(path)
    with pytest.raises(InputError, match=r"does not fit --grid 4x4: it has 45 offsets .3x5"):
        read_checkpoint(path, grid=(4, 4))
    found = read_checkpoint(path, grid=GRID)
    assert [shape(table) for table in found.biases.values()] == [(5, 9, HEADS)] * 2 and found.heads == HEADS
    assert torch.equal(next(iter(found.biases.values())).flatten(0, 1), table[:-3]), "the last three rows are CLS's"
    save(path, state | {"blocks.0.attn.relative_position_index": swin_index(GRID)})
    found = read_checkpoint(path)
    assert [shape(table) for table in found.biases.values()] == [(5, 9, HEADS)] * 2
    assert (found.grid, found.grid_source) == (GRID, "blocks.0.attn.relative_position_index")


def test_the_grid_is_the_window_if_only_windows_have_tables(tmp_path):
    swin = peer("timm.models.swin_transformer").SwinTransformer
    state = swin(img_size=(8, 32), patch_size=2, window_size=(2, 4), embed_dim=8, depths=(1, 1), num_heads=(2, 4))
    name = "layers.0.blocks.0.attn.relative_position_index"
    save(tmp_path / "model.safetensors", state.state_dict() | {name: swin_index((2, 4))})
    (tmp_path / "config.json").write_text('{"image_size": [8, 32]}')
    found = read_checkpoint(tmp_path)
    assert [shape(table) for table in found.biases.values()] == [(3, 7, 2), (3, 7, 4)]
    assert (found.grid, found.grid_source) == ((2, 4), name), "not the image's 4x16"


def test_windows_of_late_stages_may_be_smaller(tmp_path):
    swin = peer("timm.models.swin_transformer").SwinTransformer
    options = {"patch_size": 2, "embed_dim": 8, "depths": (1, 1), "num_heads": (2, 4)}
    state = swin(img_size=(4, 16), window_size=(2, 4), **options).state_dict()
    found = read_checkpoint(save(tmp_path / "x.pth", state), grid=(2, 4))
    assert [shape(table) for table in found.biases.values()] == [(3, 7, 2), (1, 7, 4)], (
        "no other window within 2x4 has 7 offsets"
    )
    state = swin(img_size=(8, 32), window_size=(4, 8), **options).state_dict()
    found = read_checkpoint(save(tmp_path / "x.pth", state), grid=(4, 8))
    assert [shape(table) for table in found.biases.values()] == [(7, 15, 2)], "45 offsets are those of 2x8 and of 3x5"
    assert found.encodings["relative"].endswith("the window of 1 more is unknown")


def swin_v2(**options):
    """A small Swin-v2 of timm with patches of 2 pixels, and the bias tables of its two stages."""
    swin = peer("timm.models.swin_transformer_v2").SwinTransformerV2
    torch.manual_seed(0)
    model = swin(patch_size=2, embed_dim=8, depths=(1, 1), num_heads=(2, 4), **options)
    attentions = [stage.blocks[0].attn for stage in model.layers]
    return model, [16 * attention.cpb_mlp(attention.relative_coords_table)[0].sigmoid() for attention in attentions]


CPB = "layers.0.blocks.0.attn."


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
    assert [shape(table) for table in tables] == [(15, 15, 2), (7, 7, 4)], "the second stage has 4x4 positions"
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

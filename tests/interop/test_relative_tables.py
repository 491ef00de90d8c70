"""Bias tables and their windows."""

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
    with pytest.raises(InputError, match=r"does not fit grid 4x4: it has 45 offsets .3x5"):
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

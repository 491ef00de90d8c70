"""Checkpoints are recognized by their tensor names, their grids are never guessed, and their tables are complete."""

import argparse
import json

import numpy as np
import pytest
import torch

from tests.interop.checkpoints import COUNT, DIM, GRID, HEADS, LIBRARIES, mae, random, save, timm_state, vit
from tests.references import peer
from vitpos.errors import InputError, Notice
from vitpos.interop.absolute_tables import match_sincos
from vitpos.interop.checkpoint import read_checkpoint
from vitpos.interop.grids import factorizations, grid_from_axial_angles
from vitpos.interop.tensor_files import read_contents


def shape(tensor):
    return None if tensor is None else tuple(tensor.shape)


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_format_of_every_library_is_recognized(tmp_path, library):
    state = vit()
    found = read_checkpoint(save(tmp_path / "x.pth", LIBRARIES[library](state)), grid=GRID)
    assert found.format == library
    assert torch.equal(found.table.flatten(0, 1), state["pos_embed"][0, 1:]), (
        "of the teacher, the encoder or the image tower"
    )
    assert list(found.encodings) == ["learned"] and found.prefix_tokens == ("CLS",) and shape(found.prefix) == (1, DIM)
    assert (found.patch, found.channels, found.dim, found.depth) == ((2, 4), 3, DIM, 2)
    assert found.heads == (HEADS if library == "JAX" else None), "query weights do not determine heads"
    assert found.axes == "tokens in row-major order"


@pytest.mark.parametrize("prefix_", ["_orig_mod.", "module._orig_mod.", "model_ema.", "encoder.", "trunk.visual."])
def test_wrapper_prefixes_are_removed(tmp_path, prefix_):
    path = save(tmp_path / "x.safetensors", {prefix_ + name: tensor for name, tensor in vit().items()})
    assert shape(read_checkpoint(path, grid=GRID).table) == (*GRID, DIM)


@pytest.mark.parametrize(
    ("tokens", "prefix", "expected"),
    [
        ((), 0, ()),
        (("cls_token",), 0, ("CLS",)),
        (("cls_token",), 1, ("CLS",)),
        (("cls_token", "dist_token"), 2, ("CLS", "distillation")),
        (("cls_token", "reg_token"), 1, ("CLS", "register")),
        (("cls_token", "storage_tokens"), 2, ("CLS", "register")),
        (("reg_token",), 0, ("register",)),
    ],
)
def test_prefix_rows_are_determined_from_tokens_and_counts(tmp_path, tokens, prefix, expected):
    found = read_checkpoint(save(tmp_path / "x.pth", vit(prefix=prefix, tokens=tokens)), grid=GRID)
    assert (
        found.prefix_tokens == expected and shape(found.prefix) == (prefix, DIM) and shape(found.table) == (*GRID, DIM)
    )


def test_arrays_of_big_vision_are_read(tmp_path):
    """bfloat16 as numpy's unnamed 2-byte type, all layers in one tensor, and Fortran order."""
    kernel = random(2, 4, 3, DIM).to(torch.bfloat16)
    arrays = {
        "params/img/embedding/kernel": kernel.view(torch.int16).numpy().view("V2"),
        "params/img/pos_embedding": np.asfortranarray(random(1, COUNT, DIM).numpy()),
        "params/img/Transformer/encoderblock/MultiHeadDotProductAttention_0/query/kernel": random(7, DIM, 4, 2).numpy(),
        "params/note": np.array("text"),
    }
    np.savez_compressed(tmp_path / "x.npz", **arrays)
    assert torch.equal(read_contents(tmp_path / "x.npz").tensors["params/img/embedding/kernel"], kernel)
    found = read_checkpoint(tmp_path / "x.npz", grid=GRID)
    assert torch.equal(found.table.flatten(0, 1), random(1, COUNT, DIM)[0])
    assert (found.format, found.depth, found.heads, found.patch, found.channels) == ("JAX", 7, 4, (2, 4), 3)


def test_a_count_that_is_no_square_gives_no_grid(tmp_path):
    path = save(tmp_path / "x.safetensors", vit() | {"pos_embed": random(1, 1 + 12, DIM)})
    with pytest.raises(InputError, match=r"12 positions after 1 row for CLS \(3x4, 4x3, 2x6, 6x2.*give grid RxC$"):
        read_checkpoint(path)


def test_a_square_count_is_read_as_a_square_with_a_notice_alone(tmp_path):
    state = vit() | {"pos_embed": random(1, 1 + 16, DIM)}  # 4×4, but it could be 2×8
    path = save(tmp_path / "x.safetensors", state)
    with pytest.warns(Notice, match=r"16 positions after 1 row for CLS; give grid RxC if it is not 4x4"):
        found = read_checkpoint(path)
    assert found.grid == (4, 4) and "assumed" in found.grid_source
    assert shape(read_checkpoint(path, grid=(2, 8)).table) == (2, 8, DIM)
    assert shape(read_checkpoint(path, grid=(17, 1)).table) == (17, 1, DIM), "without a row for CLS, if requested"
    with pytest.raises(InputError, match=r"does not fit grid 3x5: it has 16 positions .*4x4, 2x8.*give one of these"):
        read_checkpoint(path, grid=(3, 5))
    with pytest.raises(InputError, match="grid 0x4"):
        read_checkpoint(path, grid=(0, 4))


def test_another_grid_that_a_file_implies_wins_over_the_square(tmp_path):
    save(tmp_path / "model.safetensors", vit() | {"pos_embed": random(1, 1 + 16, DIM)})
    (tmp_path / "config.json").write_text(json.dumps({"image_size": [4, 32]}))  # patches of 2×4 pixels
    assert read_checkpoint(tmp_path).grid == (2, 8)
    (tmp_path / "config.json").write_text(json.dumps({"image_size": [4, 4 * 9]}))
    with pytest.raises(InputError, match="implies 2x9, which does not fit; give grid"):
        read_checkpoint(tmp_path)


CONFIGS = [
    {"image_size": [6, 20], "patch_size": 2, "num_attention_heads": 2, "model_type": "vit"},
    {"architecture": "vit_x", "pretrained_cfg": {"input_size": [3, 6, 20]}},
    {"architecture": "vit_x", "pretrained_cfg": {"input_size": [3, 9, 9]}, "model_args": {"img_size": [7, 23]}},
    {"vision_config": {"image_size": [6, 20], "num_attention_heads": 2}},
]


@pytest.mark.parametrize("config", CONFIGS)
def test_a_configuration_determines_the_grid(tmp_path, config):
    save(tmp_path / "model.safetensors", vit())
    (tmp_path / "config.json").write_text(json.dumps(config))
    for path in (tmp_path, tmp_path / "model.safetensors"):
        found = read_checkpoint(path)
        assert found.grid == GRID and "patches 2x4" in found.grid_source
        assert found.heads == (2 if "num_attention_heads" in json.dumps(config) else None)
        other = read_checkpoint(path, grid=GRID[::-1])
        assert other.grid == GRID[::-1] and f"as requested, although {found.grid_source} implies" in other.grid_source


def test_training_arguments_determine_the_grid(tmp_path):
    path = save(tmp_path / "x.pth", {"model": vit(), "args": argparse.Namespace(input_size=(6, 20)), "epoch": 1})
    assert read_checkpoint(path).grid == GRID


@pytest.mark.parametrize("size", [0, -6, 10**9, True, "six", [6], [6, 2.5], None, {"rows": 6}])
def test_invalid_sizes_in_a_configuration_are_ignored(tmp_path, size):
    save(tmp_path / "model.safetensors", vit())
    (tmp_path / "config.json").write_text(json.dumps({"image_size": size, "model_type": 3, "vision_config": []}))
    with pytest.raises(InputError, match="give grid"):
        read_checkpoint(tmp_path)


def test_model_names_imply_rotary_encodings_that_are_not_stored(tmp_path):
    state = vit()
    del state["pos_embed"]
    save(tmp_path / "model.safetensors", state)
    assert list(read_checkpoint(tmp_path).encodings) == ["none"]
    for name, encoding in {"vit_base_patch16_rope_224": "rope", "vit_small_patch16_dinov3": "rope_dino"}.items():
        (tmp_path / "config.json").write_text(json.dumps({"architecture": name}))
        assert list(read_checkpoint(tmp_path).encodings) == [encoding]
    for name in ("europe_vit_base", "eva02_enormous_patch14_clip_224"):
        (tmp_path / "config.json").write_text(json.dumps({"architecture": name}))
        assert list(read_checkpoint(tmp_path).encodings) == ["none"]


def test_clips_table_always_has_a_row_for_cls(tmp_path):
    state = vit() | {"pos_embed": random(1, 50, DIM)}
    with pytest.warns(Notice, match="49 positions after 1 row for CLS"):
        found = read_checkpoint(save(tmp_path / "clip.pth", LIBRARIES["OpenAI CLIP"](state)))
    assert found.grid == (7, 7) and len(found.prefix) == 1
    state["pos_embed"] = random(1, 49, DIM)
    with pytest.raises(InputError, match="48 positions after 1 row for CLS"):
        read_checkpoint(save(tmp_path / "clip.pth", LIBRARIES["OpenAI CLIP"](state)))


def test_a_configuration_that_does_not_fit_is_an_error(tmp_path):
    save(tmp_path / "model.safetensors", vit())
    (tmp_path / "config.json").write_text('{"image_size": 224}')
    with pytest.raises(InputError, match=r"15 positions .*112x56, which does not fit; give grid"):
        read_checkpoint(tmp_path)


def test_rotary_buffers_determine_the_grid(tmp_path):
    positions = torch.arange(COUNT)
    mixed = {"freqs": random(2, 2, 4), "freqs_t_x": positions % 5.0, "freqs_t_y": positions // 5.0}
    found = read_checkpoint(save(tmp_path / "a.pth", vit() | mixed))
    assert (found.grid, found.grid_source, list(found.encodings)) == (GRID, "freqs_t_x", ["learned", "rope_mixed"])
    assert torch.equal(found.frequencies[:, 0, 0], mixed["freqs"][1]), "stored with columns first"
    frequencies = torch.tensor([1.0, 0.1])
    angles = torch.cat([(positions // 5)[:, None] * frequencies, (positions % 5)[:, None] * frequencies], 1)
    assert grid_from_axial_angles(angles.cos()) == GRID and grid_from_axial_angles(random(15, 4)) is None
    found = read_checkpoint(save(tmp_path / "b.pth", vit() | {"rope.freqs_cos": angles.cos()}))
    assert found.grid == GRID and list(found.encodings) == ["learned", "rope"]


@pytest.mark.parametrize("reference", [None, (2, 4)])
def test_stored_axial_angles_determine_the_frequencies(tmp_path, reference):
    """EVA-02's checkpoints store what timm computes: sines and cosines per position, repeated for each pair."""
    eva = peer("timm.models.eva").Eva
    options = {"img_size": (24, 40), "patch_size": 8, "embed_dim": 32, "depth": 1, "num_heads": 2}
    rope = eva(use_rot_pos_emb=True, ref_feat_shape=reference, **options).rope
    sines, cosines = rope.get_embed().chunk(2, 1)
    state = vit(dim=32) | {"rope.freqs_sin": sines, "rope.freqs_cos": cosines}
    found = read_checkpoint(save(tmp_path / "x.pth", state))
    scale = torch.tensor(reference or GRID) / torch.tensor(GRID)  # frequencies refer to a reference grid
    bands = 10000 ** (-torch.arange(4) / 4) * scale[:, None]
    zeros = torch.zeros(4)
    expected = torch.stack([torch.cat([bands[0], zeros]), torch.cat([zeros, bands[1]])])[None, None]
    assert found.grid == GRID and list(found.encodings) == ["learned", "rope"]
    torch.testing.assert_close(found.frequencies, expected)
    for broken in (sines.flip(0), 2 * sines, torch.zeros_like(sines), sines[:3], sines.long()):
        found = read_checkpoint(save(tmp_path / "x.pth", state | {"rope.freqs_sin": broken}))
        assert found.frequencies is None and list(found.encodings) == ["learned", "rope"]


def test_periods_of_dinov3_determine_the_heads(tmp_path):
    state = vit(tokens=("cls_token", "storage_tokens")) | {"rope_embed.periods": torch.tensor([1.0])}
    del state["pos_embed"]
    found = read_checkpoint(save(tmp_path / "x.pth", state))
    assert (found.format, list(found.encodings), found.heads, found.grid) == ("DINOv3", ["rope_dino"], 2, None)
    assert found.prefix_tokens == ("CLS", "register") and found.periods.tolist() == [1]


@pytest.mark.parametrize("precision", [torch.float32, torch.float16, torch.bfloat16])
def test_a_stored_sin_cos_table_is_recognized_and_determines_the_grid(tmp_path, precision):
    table = torch.cat([torch.zeros(1, 16), mae(GRID, 16)])[None].to(precision)
    found = read_checkpoint(save(tmp_path / "x.pth", {"model": vit(dim=16) | {"pos_embed": table}}))
    assert list(found.encodings) == ["sinusoidal"] and found.grid == GRID and "formula" in found.grid_source
    assert "start with columns: sines and cosines of one axis" in found.axes
    assert torch.equal(found.prefix, torch.zeros(1, 16))
    with pytest.raises(InputError, match="3x5, not of grid 5x3"):
        read_checkpoint(tmp_path / "x.pth", grid=(5, 3))


def test_layouts_of_sin_cos_tables_are_distinguished():
    table, grids = mae(GRID, 16), factorizations(COUNT)
    moco = table.unflatten(1, (2, 8)).flip(1).flatten(1)
    assert match_sincos(moco, grids).axes.startswith("vectors start with rows: sines and cosines of one axis")
    sincos = peer("timm.layers").build_sincos2d_pos_embed
    timms = sincos(list(GRID), dim=16)
    assert match_sincos(timms, grids).axes == "vectors start with rows: sines of both axes, then cosines"
    assert match_sincos(timms, grids).grid == GRID
    alternating = table.unflatten(1, (2, 2, 4)).transpose(2, 3).flatten(1)
    assert (
        match_sincos(alternating, grids).axes
        == "vectors start with columns: alternating sine and cosine, one axis after the other"
    )
    line = torch.arange(15.0)[:, None] * 10000 ** (-torch.arange(8) / 8)
    line_table = match_sincos(torch.stack([line.sin(), line.cos()], -1).flatten(1), grids)
    assert line_table.grid is None and line_table.axes == "1-D, of the index: alternating sine and cosine"
    assert match_sincos(table + 0.1 * random(*table.shape), grids) is None, "after training it is learned"


@pytest.mark.parametrize(
    ("name", "options", "grid", "encodings", "facts"),
    [
        (
            "vit_tiny_patch16_224",
            {"depth": 2},
            (14, 14),
            ["learned"],
            {"format": "timm", "prefix_tokens": ("CLS",), "depth": 2},
        ),
        ("vit_tiny_patch16_224", {"img_size": (96, 160), "depth": 1}, (6, 10), ["learned"], {"dim": 192}),
        ("deit_tiny_distilled_patch16_224", {"depth": 1}, (14, 14), ["learned"], {"format": "DeiT"}),
        (
            "vit_small_patch14_reg4_dinov2",
            {"depth": 1},
            (37, 37),
            ["learned"],
            {"prefix_tokens": ("CLS", *["register"] * 4)},
        ),
        ("eva02_tiny_patch14_224", {"depth": 1}, (16, 16), ["learned"], {"patch": (14, 14)}),
        ("eva02_base_patch14_224", {"depth": 1}, (16, 16), ["learned", "rope"], {"format": "EVA-02"}),
        ("vit_base_patch16_rope_224", {"depth": 1}, None, ["none"], {"table": None}),
        ("vit_small_patch16_rope_mixed_ape_224", {"depth": 2}, (14, 14), ["learned", "rope_mixed"], {"heads": 6}),
        ("vit_relpos_small_patch16_224", {"depth": 2}, None, ["cpb"], {"heads": 6}),
        ("beit_base_patch16_224", {"depth": 2}, (14, 14), ["relative"], {"format": "BEiT", "heads": 12}),
        (
            "swin_tiny_patch4_window7_224",
            {"depths": (1, 1, 1, 1)},
            (7, 7),
            ["relative"],
            {"format": "Swin", "depth": 4},
        ),
        ("swinv2_tiny_window8_256", {"depths": (1, 1, 1, 1)}, None, ["cpb"], {"format": "Swin", "heads": None}),
        ("samvit_base_patch16_224", {"depth": 2}, None, ["decomposed"], {"heads": 12, "grid": (14, 14)}),
        ("naflexvit_base_patch16_gap", {"depth": 1}, None, ["learned"], {"grid": (16, 16), "patch": None}),
        (
            "naflexvit_base_patch16_gap",
            {"depth": 1, "pos_embed": "factorized"},
            None,
            ["factorized"],
            {"grid": (16, 16)},
        ),
        ("pit_ti_224", {}, None, ["learned"], {"grid": (27, 27)}),
        ("twins_pcpvt_small", {}, None, ["cpe"], {"patch": (4, 4)}),
        ("xcit_nano_12_p16_224", {}, None, ["fourier"], {}),
        ("levit_128s", {}, None, ["relative"], {}),
    ],
)
def test_checkpoints_of_timm_are_recognized(tmp_path, name, options, grid, encodings, facts):
    state = timm_state(name, **options)
    found = read_checkpoint(save(tmp_path / "x.safetensors", state), grid=grid)
    assert list(found.encodings) == encodings
    assert {fact: getattr(found, fact) for fact in facts} == facts
    if "learned" in encodings and state.get("pos_embed", random(1)).ndim == 3:
        assert torch.equal(found.table.flatten(0, 1), state["pos_embed"][0, len(found.prefix) :])
    if grid is not None:
        assert (found.grid, found.grid_source) == (grid, "as requested")


def test_nan_in_other_tensors_is_ignored(tmp_path):
    state = vit() | {"blocks.0.mlp.fc1.weight": torch.full((4, 4), torch.nan)}
    assert read_checkpoint(save(tmp_path / "x.pth", state), grid=GRID).grid == GRID

"""Anyone's checkpoint: read without running it, recognised by its names, its grid never guessed."""

import argparse
import io
import json
import pickle
import struct
import time
import warnings
import zipfile
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from tests.references import peer
from vitpos.errors import UserError
from vitpos.inspection.inspect import of_checkpoint
from vitpos.inspection.offsets import look_at_offsets
from vitpos.inspection.table import look_at_table
from vitpos.interop.checkpoint import open_checkpoint, recognise
from vitpos.interop.grids import factorisations, of_axial_angles, of_index
from vitpos.interop.sincos import find_waves
from vitpos.interop.tensor_files import read_contents, read_tensors, told_in

GRID, DIM, HEADS = (3, 5), 8, 2
PLACES = GRID[0] * GRID[1]


def drawn(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def vit(*, prefix=1, tokens=("cls_token",), dim=DIM, depth=2):
    """The state of a small ViT with timm's names; patches of 2×4, a table of 3×5 places."""
    state = {token: drawn(1, 1, dim) for token in tokens}
    state["pos_embed"] = drawn(1, prefix + PLACES, dim)
    state |= {"patch_embed.proj.weight": drawn(dim, 3, 2, 4), "patch_embed.proj.bias": drawn(dim)}
    for layer in range(depth):
        block = f"blocks.{layer}."
        state |= {block + "attn.qkv.weight": drawn(3 * dim, dim), block + "mlp.fc1.weight": drawn(4 * dim, dim)}
    return state


def hugging_face(state, root="vit."):
    """The same state with Hugging Face's names, where queries, keys and values are apart."""
    names = {
        "cls_token": "embeddings.cls_token",
        "dist_token": "embeddings.distillation_token",
        "pos_embed": "embeddings.position_embeddings",
        "patch_embed.proj": "embeddings.patch_embeddings.projection",
        "blocks.": "encoder.layer.",
        "mlp.fc1": "intermediate.dense",
    }
    renamed = {}
    for name, tensor in state.items():
        for theirs, ours in names.items():
            name = name.replace(theirs, ours)
        if "attn.qkv" in name:
            for part, piece in zip(("query", "key", "value"), tensor.chunk(3), strict=True):
                renamed[root + name.replace("attn.qkv", f"attention.attention.{part}")] = piece
        else:
            renamed[root + name] = tensor
    return renamed


def jax(state):
    """The same state as google-research/vision_transformer writes it: kernels (in, out), heads apart, slashes."""
    found = {
        "cls": state["cls_token"],
        "Transformer/posembed_input/pos_embedding": state["pos_embed"],
        "embedding/kernel": state["patch_embed.proj.weight"].permute(2, 3, 1, 0),
        "embedding/bias": state["patch_embed.proj.bias"],
    }
    for layer in range(2):
        for part in ("query", "key", "value"):
            name = f"Transformer/encoderblock_{layer}/MultiHeadDotProductAttention_1/{part}/kernel"
            found[name] = drawn(DIM, HEADS, DIM // HEADS)
    return found


def save(path, state, **options):
    """Writes a state in the format of the file's name."""
    if path.suffix == ".safetensors":
        save_file({name: tensor.contiguous() for name, tensor in state.items()}, path, **options)
    elif path.suffix == ".npz":
        np.savez(path, **{name: tensor.numpy() for name, tensor in state.items()})
    else:
        torch.save(state, path, **options)
    return path


def shape(tensor):
    return None if tensor is None else tuple(tensor.shape)


FORMATS = [
    ("x.safetensors", {}),
    ("x.pth", {}),
    ("x.pt", {"_use_new_zipfile_serialization": False}),
    ("x.npz", {}),
    ("misnamed.bin", {}),
]


@pytest.mark.parametrize(("name", "options"), FORMATS)
def test_every_format_gives_the_same_tensors(tmp_path, name, options):
    state = vit()
    found = read_tensors(save(tmp_path / name, state, **options))
    assert found.keys() == state.keys() and all(torch.equal(found[key], state[key]) for key in state)
    checkpoint = open_checkpoint(tmp_path / name, grid=GRID)
    assert torch.equal(checkpoint.table, state["pos_embed"][0, 1:].unflatten(0, GRID))
    assert torch.equal(checkpoint.prefix, state["pos_embed"][0, :1])


def test_the_bytes_of_a_file_say_what_it_is_and_not_its_name(tmp_path):
    save(tmp_path / "x.safetensors", vit()).rename(tmp_path / "x.npz")
    assert open_checkpoint(tmp_path / "x.npz", grid=GRID).naming == "timm"


def test_metadata_is_told_without_reading_a_tensor(tmp_path):
    path = save(tmp_path / "x.safetensors", vit(), metadata={"cell": "{}"}).rename(tmp_path / "x.bin")
    assert told_in(path) == read_contents(path).about == {"cell": "{}"}, "whatever the file is called"
    content = path.read_bytes()
    for other in (content[:-1], content[:100], content[9:], b"", b"PK\x03\x04", pickle.dumps({"cell": "{}"})):
        path.write_bytes(other)
        assert told_in(path) == {}
    assert told_in(tmp_path) == told_in(tmp_path / "absent") == told_in(save(tmp_path / "x.pth", vit())) == {}


WRAPPERS = {
    "timm": lambda state: {"state_dict": {f"module.{name}": tensor for name, tensor in state.items()}, "epoch": 3},
    "MAE": lambda state: {
        "model": state | {"decoder_pos_embed": drawn(1, 1 + PLACES, 4), "mask_token": drawn(1, 1, 4)}
    },
    "DINO": lambda state: {
        "student": {f"module.backbone.{name}": -tensor for name, tensor in state.items()},
        "teacher": {f"backbone.{name}": tensor for name, tensor in state.items()},
        "optimizer": {"state": {0: {"exp_avg": drawn(3)}}},
    },
    "DINOv2": lambda state: state | {"mask_token": drawn(1, DIM), "blocks.0.ls1.gamma": drawn(DIM)},
    "OpenMMLab": lambda state: {
        "state_dict": {"backbone." + name.replace(".proj", ".projection"): tensor for name, tensor in state.items()}
    },
    "torchvision": lambda state: {
        "class_token": state["cls_token"],
        "conv_proj.weight": state["patch_embed.proj.weight"],
        "encoder.pos_embedding": state["pos_embed"],
        "encoder.layers.encoder_layer_0.self_attention.in_proj_weight": drawn(3 * DIM, DIM),
        "encoder.layers.encoder_layer_1.self_attention.in_proj_weight": drawn(3 * DIM, DIM),
    },
    "OpenAI CLIP": lambda state: {
        "positional_embedding": drawn(77, 4),
        "visual.positional_embedding": state["pos_embed"][0],
        "visual.class_embedding": state["cls_token"][0, 0],
        "visual.conv1.weight": state["patch_embed.proj.weight"],
        "visual.transformer.resblocks.0.attn.in_proj_weight": drawn(3 * DIM, DIM),
        "visual.transformer.resblocks.1.attn.in_proj_weight": drawn(3 * DIM, DIM),
    },
    "Hugging Face ViT": hugging_face,
    "Hugging Face DINOv2": lambda state: hugging_face(state | {"blocks.0.layer_scale1.lambda1": drawn(DIM)}, "dinov2."),
    "Hugging Face ViT-MAE": lambda state: hugging_face(state) | {"decoder.decoder_pos_embed": drawn(1, 1 + PLACES, 4)},
    "JAX": jax,
}


@pytest.mark.parametrize("naming", WRAPPERS)
def test_every_naming_is_recognised_under_its_wrappers(tmp_path, naming):
    state = vit()
    found = open_checkpoint(save(tmp_path / "x.pth", WRAPPERS[naming](state)), grid=GRID)
    assert found.naming == naming
    assert torch.equal(found.table.flatten(0, 1), state["pos_embed"][0, 1:]), (
        "the teacher's, the encoder's, the picture's"
    )
    assert list(found.encodings) == ["learned"] and found.tokens == ("CLS",) and shape(found.prefix) == (1, DIM)
    assert (found.patch, found.channels, found.dim, found.depth) == ((2, 4), 3, DIM, 2)
    assert found.heads == (HEADS if naming == "JAX" else None), "weights of queries do not tell heads"
    assert found.axes == "tokens row by row"


@pytest.mark.parametrize("compiled", ["_orig_mod.", "module._orig_mod.", "model_ema.", "encoder.", "trunk.visual."])
def test_any_wrapper_is_seen_through(tmp_path, compiled):
    path = save(tmp_path / "x.safetensors", {compiled + name: tensor for name, tensor in vit().items()})
    assert shape(open_checkpoint(path, grid=GRID).table) == (*GRID, DIM)


@pytest.mark.parametrize(
    ("tokens", "prefix", "told"),
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
def test_rows_for_tokens_in_front_are_found_from_tokens_and_counts(tmp_path, tokens, prefix, told):
    found = open_checkpoint(save(tmp_path / "x.pth", vit(prefix=prefix, tokens=tokens)), grid=GRID)
    assert found.tokens == told and shape(found.prefix) == (prefix, DIM) and shape(found.table) == (*GRID, DIM)


def test_big_visions_arrays_are_read_too(tmp_path):
    """bfloat16, which numpy writes as two bytes without a name; all layers in one tensor; columns first in memory."""
    kernel = drawn(2, 4, 3, DIM).to(torch.bfloat16)
    arrays = {
        "params/img/embedding/kernel": kernel.view(torch.int16).numpy().view("V2"),
        "params/img/pos_embedding": np.asfortranarray(drawn(1, PLACES, DIM).numpy()),
        "params/img/Transformer/encoderblock/MultiHeadDotProductAttention_0/query/kernel": drawn(7, DIM, 4, 2).numpy(),
        "params/note": np.array("text"),
    }
    np.savez_compressed(tmp_path / "x.npz", **arrays)
    assert torch.equal(read_tensors(tmp_path / "x.npz")["params/img/embedding/kernel"], kernel)
    found = open_checkpoint(tmp_path / "x.npz", grid=GRID)
    assert torch.equal(found.table.flatten(0, 1), drawn(1, PLACES, DIM)[0])
    assert (found.naming, found.depth, found.heads, found.patch, found.channels) == ("JAX", 7, 4, (2, 4), 3)


# The grid


def test_a_grid_is_never_taken_from_a_count(tmp_path):
    state = vit() | {"pos_embed": drawn(1, 1 + 16, DIM)}  # a square, and yet it may be 2×8
    path = save(tmp_path / "x.safetensors", state)
    with pytest.raises(
        UserError, match=r"16 places after 1 row for CLS \(4x4, 2x8, 8x2, 1x16, 16x1\).*give --grid RxC$"
    ):
        open_checkpoint(path)
    assert shape(open_checkpoint(path, grid=(2, 8)).table) == (2, 8, DIM)
    assert shape(open_checkpoint(path, grid=(17, 1)).table) == (17, 1, DIM), "without a row for CLS, when asked"
    with pytest.raises(UserError, match=r"does not fit --grid 3x5: it has 16 places .*4x4, 2x8.*give one of these"):
        open_checkpoint(path, grid=(3, 5))
    with pytest.raises(UserError, match=r"--grid 0x4 has no places"):
        open_checkpoint(path, grid=(0, 4))


def test_candidates_are_all_factorisations_the_most_square_first():
    assert factorisations(12) == [(3, 4), (4, 3), (2, 6), (6, 2), (1, 12), (12, 1)]
    assert factorisations(9) == [(3, 3), (1, 9), (9, 1)] and factorisations(1) == [(1, 1)]


CONFIGS = [
    {"image_size": [6, 20], "patch_size": 2, "num_attention_heads": 2, "model_type": "vit"},
    {"architecture": "vit_x", "pretrained_cfg": {"input_size": [3, 6, 20]}},
    {"architecture": "vit_x", "pretrained_cfg": {"input_size": [3, 9, 9]}, "model_args": {"img_size": [7, 23]}},
    {"vision_config": {"image_size": [6, 20], "num_attention_heads": 2}},
]


@pytest.mark.parametrize("config", CONFIGS)
def test_a_configuration_tells_the_grid(tmp_path, config):
    save(tmp_path / "model.safetensors", vit())
    (tmp_path / "config.json").write_text(json.dumps(config))
    for path in (tmp_path, tmp_path / "model.safetensors"):
        found = open_checkpoint(path)
        assert found.grid == GRID and "in patches of 2x4" in found.grid_source
        assert found.heads == (2 if "num_attention_heads" in json.dumps(config) else None)
        other = open_checkpoint(path, grid=GRID[::-1])
        assert other.grid == GRID[::-1] and f"as asked, though {found.grid_source} says" in other.grid_source


def test_arguments_of_the_training_tell_the_grid(tmp_path):
    path = save(tmp_path / "x.pth", {"model": vit(), "args": argparse.Namespace(input_size=(6, 20)), "epoch": 1})
    assert open_checkpoint(path).grid == GRID


@pytest.mark.parametrize("size", [0, -6, 10**9, True, "six", [6], [6, 2.5], None, {"rows": 6}])
def test_a_configuration_that_makes_no_sense_says_nothing(tmp_path, size):
    save(tmp_path / "model.safetensors", vit())
    (tmp_path / "config.json").write_text(json.dumps({"image_size": size, "model_type": 3, "vision_config": []}))
    with pytest.raises(UserError, match="the file does not say in which grid; give --grid"):
        open_checkpoint(tmp_path)


def test_the_name_of_a_model_tells_rotary_positions_of_which_nothing_is_stored(tmp_path):
    state = vit()
    del state["pos_embed"]
    save(tmp_path / "model.safetensors", state)
    assert list(open_checkpoint(tmp_path).encodings) == ["none"]
    for name, encoding in {"vit_base_patch16_rope_224": "rope", "vit_small_patch16_dinov3": "rope_dino"}.items():
        (tmp_path / "config.json").write_text(json.dumps({"architecture": name}))
        assert list(open_checkpoint(tmp_path).encodings) == [encoding]
    for name in ("europe_vit_base", "eva02_enormous_patch14_clip_224"):
        (tmp_path / "config.json").write_text(json.dumps({"architecture": name}))
        assert list(open_checkpoint(tmp_path).encodings) == ["none"]


def test_a_table_of_clips_always_has_a_row_for_its_class_token(tmp_path):
    state = vit() | {"pos_embed": drawn(1, 50, DIM)}
    with pytest.raises(UserError, match=r"has 49 places after 1 row for CLS \(7x7, 1x49, 49x1\), and"):
        open_checkpoint(save(tmp_path / "clip.pth", WRAPPERS["OpenAI CLIP"](state)))
    with pytest.raises(UserError, match=r"49 places .* or 50 places"):
        open_checkpoint(save(tmp_path / "vit.pth", state))


def test_a_configuration_that_does_not_fit_is_not_believed(tmp_path):
    save(tmp_path / "model.safetensors", vit())
    (tmp_path / "config.json").write_text('{"image_size": 224}')
    with pytest.raises(
        UserError, match=r"15 places .*224x224 in patches of 2x4 says 112x56, which does not fit; give --grid"
    ):
        open_checkpoint(tmp_path)


def swin_index(grid):
    places = torch.cartesian_prod(torch.arange(grid[0]), torch.arange(grid[1]))
    offsets = places[:, None] - places + torch.tensor(grid) - 1
    return offsets[..., 0] * (2 * grid[1] - 1) + offsets[..., 1]


@pytest.mark.parametrize("grid", [(3, 5), (5, 3), (2, 2), (7, 7)])
def test_an_index_of_offsets_tells_the_grid(grid):
    index = swin_index(grid)
    assert of_index(index) == grid
    with_cls = torch.nn.functional.pad(index, (1, 0, 1, 0), value=int(index.max()) + 1)
    assert of_index(with_cls) == grid, "BEiT's, with CLS in front"
    assert of_index(index.flip(0)) is None and of_index(index.float()) is None
    assert of_index(swin_index((1, 6))) is None, "which is also the index of 6x1"


def test_buffers_of_rotary_positions_tell_the_grid(tmp_path):
    places = torch.arange(PLACES)
    mixed = {"freqs": drawn(2, 2, 4), "freqs_t_x": places % 5.0, "freqs_t_y": places // 5.0}
    found = open_checkpoint(save(tmp_path / "a.pth", vit() | mixed))
    assert (found.grid, found.grid_source, list(found.encodings)) == (GRID, "freqs_t_x", ["learned", "rope_mixed"])
    assert torch.equal(found.frequencies[:, 0, 0], mixed["freqs"][1]), "rows come second there, first here"
    rates = torch.tensor([1.0, 0.1])
    angles = torch.cat([(places // 5)[:, None] * rates, (places % 5)[:, None] * rates], 1)
    assert of_axial_angles(angles.cos()) == GRID and of_axial_angles(drawn(15, 4)) is None
    found = open_checkpoint(save(tmp_path / "b.pth", vit() | {"rope.freqs_cos": angles.cos()}))
    assert found.grid == GRID and list(found.encodings) == ["learned", "rope"]


@pytest.mark.parametrize("reference", [None, (2, 4)])
def test_a_stored_axial_buffer_tells_its_frequencies(tmp_path, reference):
    """EVA-02's release stores what timm computes: sines and cosines for each place, each pair of channels twice."""
    eva = peer("timm.models.eva").Eva
    options = {"img_size": (24, 40), "patch_size": 8, "embed_dim": 32, "depth": 1, "num_heads": 2}
    rope = eva(use_rot_pos_emb=True, ref_feat_shape=reference, **options).rope
    sines, cosines = rope.get_embed().chunk(2, 1)
    state = vit(dim=32) | {"rope.freqs_sin": sines, "rope.freqs_cos": cosines}
    found = open_checkpoint(save(tmp_path / "x.pth", state))
    scale = torch.tensor(reference or GRID) / torch.tensor(GRID)  # frequencies are those of a reference grid
    bands = 10000 ** (-torch.arange(4) / 4) * scale[:, None]
    still = torch.zeros(4)
    expected = torch.stack([torch.cat([bands[0], still]), torch.cat([still, bands[1]])])[None, None]
    assert found.grid == GRID and list(found.encodings) == ["learned", "rope"]
    torch.testing.assert_close(found.frequencies, expected)
    for broken in (sines.flip(0), 2 * sines, torch.zeros_like(sines), sines[:3], sines.long()):
        found = open_checkpoint(save(tmp_path / "x.pth", state | {"rope.freqs_sin": broken}))
        assert found.frequencies is None and list(found.encodings) == ["learned", "rope"]


def test_dinov3s_periods_tell_its_heads(tmp_path):
    state = vit(tokens=("cls_token", "storage_tokens")) | {"rope_embed.periods": torch.tensor([1.0])}
    del state["pos_embed"]
    found = open_checkpoint(save(tmp_path / "x.pth", state))
    assert (found.naming, list(found.encodings), found.heads, found.grid) == ("DINOv3", ["rope_dino"], 2, None)
    assert found.tokens == ("CLS", "register") and found.periods.tolist() == [1]


# Sines and cosines that are stored


def mae(grid, dim):
    """MAE's table: half a vector of waves of the column, half of the row."""
    rows, columns = torch.meshgrid(*(torch.arange(side, dtype=torch.float64) for side in grid), indexing="ij")
    rates = 10000 ** (-torch.arange(dim // 4, dtype=torch.float64) / (dim // 4))
    halves = [side.flatten()[:, None] * rates for side in (columns, rows)]
    return torch.cat([wave for half in halves for wave in (half.sin(), half.cos())], 1).float()


@pytest.mark.parametrize("precision", [torch.float32, torch.float16, torch.bfloat16])
def test_a_stored_sin_cos_table_is_seen_to_be_one_and_tells_its_grid(tmp_path, precision):
    table = torch.cat([torch.zeros(1, 16), mae(GRID, 16)])[None].to(precision)
    found = open_checkpoint(save(tmp_path / "x.pth", {"model": vit(dim=16) | {"pos_embed": table}}))
    assert list(found.encodings) == ["sinusoidal"] and found.grid == GRID and "formula" in found.grid_source
    assert "begin with columns: sines and cosines of one axis" in found.axes
    assert torch.equal(found.prefix, torch.zeros(1, 16))
    with pytest.raises(UserError, match="formula of 3x5, not of --grid 5x3; leave --grid away"):
        open_checkpoint(tmp_path / "x.pth", grid=(5, 3))


def test_sin_cos_tables_are_told_apart_by_the_order_of_their_axes():
    table, grids = mae(GRID, 16), factorisations(PLACES)
    moco = table.unflatten(1, (2, 8)).flip(1).flatten(1)
    assert find_waves(moco, grids).axes.startswith("vectors begin with rows: sines and cosines of one axis")
    sincos = peer("timm.layers").build_sincos2d_pos_embed
    timms = sincos(list(GRID), dim=16)
    assert find_waves(timms, grids).axes == "vectors begin with rows: sines of both axes, then cosines"
    assert find_waves(timms, grids).grid == GRID
    turns = table.unflatten(1, (2, 2, 4)).transpose(2, 3).flatten(1)
    assert (
        find_waves(turns, grids).axes == "vectors begin with columns: sine and cosine in turn, one axis after the other"
    )
    line = torch.arange(15.0)[:, None] * 10000 ** (-torch.arange(8) / 8)
    words = find_waves(torch.stack([line.sin(), line.cos()], -1).flatten(1), grids)
    assert words.grid is None and words.axes == "waves of the index alone: sine and cosine in turn"
    assert find_waves(table + 0.1 * drawn(*table.shape), grids) is None, "once trained it is learned"


# Real peers


def of_timm(name, **options):
    with warnings.catch_warnings(action="ignore"):
        return peer("timm").create_model(name, **options).state_dict()


@pytest.mark.parametrize(
    ("name", "options", "grid", "encodings", "facts"),
    [
        (
            "vit_tiny_patch16_224",
            {"depth": 2},
            (14, 14),
            ["learned"],
            {"naming": "timm", "tokens": ("CLS",), "depth": 2},
        ),
        ("vit_tiny_patch16_224", {"img_size": (96, 160), "depth": 1}, (6, 10), ["learned"], {"dim": 192}),
        ("deit_tiny_distilled_patch16_224", {"depth": 1}, (14, 14), ["learned"], {"naming": "DeiT"}),
        ("vit_small_patch14_reg4_dinov2", {"depth": 1}, (37, 37), ["learned"], {"tokens": ("CLS", *["register"] * 4)}),
        ("eva02_tiny_patch14_224", {"depth": 1}, (16, 16), ["learned"], {"patch": (14, 14)}),
        ("eva02_base_patch14_224", {"depth": 1}, (16, 16), ["learned", "rope"], {"naming": "EVA-02"}),
        ("vit_base_patch16_rope_224", {"depth": 1}, None, ["none"], {"table": None}),
        ("vit_small_patch16_rope_mixed_ape_224", {"depth": 2}, (14, 14), ["learned", "rope_mixed"], {"heads": 6}),
        ("vit_relpos_small_patch16_224", {"depth": 2}, None, ["cpb"], {"heads": 6}),
        ("beit_base_patch16_224", {"depth": 2}, (14, 14), ["relative"], {"naming": "BEiT", "heads": 12}),
        (
            "swin_tiny_patch4_window7_224",
            {"depths": (1, 1, 1, 1)},
            (7, 7),
            ["relative"],
            {"naming": "Swin", "depth": 4},
        ),
        ("swinv2_tiny_window8_256", {"depths": (1, 1, 1, 1)}, None, ["cpb"], {"naming": "Swin", "heads": None}),
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
def test_timms_checkpoints_are_recognised(tmp_path, name, options, grid, encodings, facts):
    state = of_timm(name, **options)
    found = open_checkpoint(save(tmp_path / "x.safetensors", state), grid=grid)
    assert list(found.encodings) == encodings
    assert {fact: getattr(found, fact) for fact in facts} == facts
    if "learned" in encodings and state.get("pos_embed", drawn(1)).ndim == 3:
        assert torch.equal(found.table.flatten(0, 1), state["pos_embed"][0, len(found.prefix) :])
    if grid is not None:
        assert (found.grid, found.grid_source) == (grid, "as asked")


def test_relative_tables_have_the_shape_of_their_offsets(tmp_path):
    table = drawn(5 * 9 + 3, HEADS)
    state = vit() | {f"blocks.{layer}.attn.relative_position_bias_table": table for layer in (0, 1)}
    del state["pos_embed"]
    path = save(tmp_path / "x.pth", state)
    with pytest.raises(UserError, match=r"has 45 offsets, and the file does not say of which grid: 3x5, 5x3, 2x8, 8x2"):
        open_checkpoint(path)
    with pytest.raises(UserError, match=r"does not fit --grid 4x4: it has 45 offsets, of 3x5"):
        open_checkpoint(path, grid=(4, 4))
    found = open_checkpoint(path, grid=GRID)
    assert [shape(table) for table in found.relative.values()] == [(5, 9, HEADS)] * 2 and found.heads == HEADS
    assert torch.equal(next(iter(found.relative.values())).flatten(0, 1), table[:-3]), "the last three are CLS's"
    save(path, state | {"blocks.0.attn.relative_position_index": swin_index(GRID)})
    found = open_checkpoint(path)
    assert [shape(table) for table in found.relative.values()] == [(5, 9, HEADS)] * 2
    assert (found.grid, found.grid_source) == (GRID, "blocks.0.attn.relative_position_index")


def test_windows_are_the_grid_where_they_alone_have_tables(tmp_path):
    swin = peer("timm.models.swin_transformer").SwinTransformer
    state = swin(img_size=(8, 32), patch_size=2, window_size=(2, 4), embed_dim=8, depths=(1, 1), num_heads=(2, 4))
    name = "layers.0.blocks.0.attn.relative_position_index"
    save(tmp_path / "model.safetensors", state.state_dict() | {name: swin_index((2, 4))})
    (tmp_path / "config.json").write_text('{"image_size": [8, 32]}')
    found = open_checkpoint(tmp_path)
    assert [shape(table) for table in found.relative.values()] == [(3, 7, 2), (3, 7, 4)]
    assert (found.grid, found.grid_source) == ((2, 4), name), "and not the picture's 4x16"


def test_windows_of_late_stages_may_be_smaller(tmp_path):
    swin = peer("timm.models.swin_transformer").SwinTransformer
    options = {"patch_size": 2, "embed_dim": 8, "depths": (1, 1), "num_heads": (2, 4)}
    state = swin(img_size=(4, 16), window_size=(2, 4), **options).state_dict()
    found = open_checkpoint(save(tmp_path / "x.pth", state), grid=(2, 4))
    assert [shape(table) for table in found.relative.values()] == [(3, 7, 2), (1, 7, 4)], "no other window of 2x4 has 7"
    state = swin(img_size=(8, 32), window_size=(4, 8), **options).state_dict()
    found = open_checkpoint(save(tmp_path / "x.pth", state), grid=(4, 8))
    assert [shape(table) for table in found.relative.values()] == [(7, 15, 2)], "45 offsets are of 2x8 or of 3x5"
    assert found.encodings["relative"].endswith("1 more do not say their window")


def swin_v2(**options):
    """A small Swin-v2 of timm with patches of 2, and the bias table of each of its two stages."""
    swin = peer("timm.models.swin_transformer_v2").SwinTransformerV2
    torch.manual_seed(0)
    model = swin(patch_size=2, embed_dim=8, depths=(1, 1), num_heads=(2, 4), **options)
    attentions = [stage.blocks[0].attn for stage in model.layers]
    return model, [16 * attention.cpb_mlp(attention.relative_coords_table)[0].sigmoid() for attention in attentions]


CPB = "layers.0.blocks.0.attn."


def test_swin_v2s_networks_are_evaluated_where_their_window_is_known(tmp_path):
    model, tables = swin_v2(img_size=(24, 40), window_size=(3, 5))
    path = save(tmp_path / "x.pth", model.state_dict())
    assert open_checkpoint(path).relative == {} and open_checkpoint(path).grid is None
    found = open_checkpoint(path, grid=(3, 5))
    assert list(found.relative) == ["layers.0.blocks.0.attn.cpb_mlp", "layers.1.blocks.0.attn.cpb_mlp"]
    for mine, theirs in zip(found.relative.values(), tables, strict=True):
        torch.testing.assert_close(mine, theirs)
    assert list(found.encodings) == ["cpb"] and found.encodings["cpb"].endswith(
        "evaluated in 2, the first for 3x5 places and 2 heads"
    )
    index = {CPB + "relative_position_index": swin_index((3, 5))}
    found = open_checkpoint(save(path, model.state_dict() | index))
    assert (found.grid, found.grid_source) == ((3, 5), CPB + "relative_position_index") and len(found.relative) == 1
    attention = model.layers[0].blocks[0].attn
    mask = attention.relative_position_index.view(-1)
    mine = found.relative[CPB + "cpb_mlp"].flatten(0, 1)[mask].unflatten(0, (15, 15)).permute(2, 0, 1)
    seen = []
    attention.softmax.register_forward_pre_hook(lambda module, logits: seen.append(logits[0]))
    with torch.no_grad():
        attention.qkv.weight[:16] = 0  # no content
        attention(drawn(1, 15, 8))
    torch.testing.assert_close(seen[0][0], mine)


def test_swin_v2s_stored_offsets_are_those_of_its_pretraining(tmp_path):
    model, tables = swin_v2(img_size=(16, 16), window_size=8, pretrained_window_sizes=(4, 3))
    assert [shape(table) for table in tables] == [(15, 15, 2), (7, 7, 4)], "the second stage has 4x4 places"
    stored = {CPB + "relative_coords_table": model.layers[0].blocks[0].attn.relative_coords_table}
    save(path := tmp_path / "model.safetensors", model.state_dict() | stored)
    found = open_checkpoint(path)
    assert (found.grid, found.grid_source) == ((8, 8), CPB + "relative_coords_table") and len(found.relative) == 1
    torch.testing.assert_close(found.relative[CPB + "cpb_mlp"], tables[0])
    save(path, model.state_dict())
    config = {"image_size": 16, "window_size": 8, "pretrained_window_sizes": [4, 3]}
    for written in (config, {"model_args": config}):
        (tmp_path / "config.json").write_text(json.dumps(written | {"image_size": 16}))
        found = open_checkpoint(path)
        assert found.grid == (8, 8)
        for mine, theirs in zip(found.relative.values(), tables, strict=True):
            torch.testing.assert_close(mine, theirs)
    (tmp_path / "config.json").write_text('{"window_size": 60000}')
    assert open_checkpoint(path).relative == {}, "more offsets than anyone can look at"


@pytest.mark.parametrize("kind", ["cr", "swin"])
def test_timms_networks_of_offsets_are_evaluated_too(tmp_path, kind):
    relpos = peer("timm.layers").RelPosMlp(window_size=GRID, num_heads=HEADS, mode=kind).eval()
    state = vit() | {f"blocks.0.attn.rel_pos.{name}": tensor for name, tensor in relpos.state_dict().items()}
    del state["pos_embed"]
    save(tmp_path / "model.safetensors", state)
    (tmp_path / "config.json").write_text('{"image_size": [6, 20]}')
    found = open_checkpoint(tmp_path)
    table = found.relative["blocks.0.attn.rel_pos.mlp"]
    torch.testing.assert_close(table.flatten(0, 1)[swin_index(GRID)].permute(2, 0, 1), relpos.get_bias()[0])
    assert found.grid == GRID


# Folders


def test_a_folder_is_its_one_checkpoint_or_its_shards(tmp_path):
    state = hugging_face(vit())
    names = list(state)
    (tmp_path / "notes.txt").write_text("nothing")
    with pytest.raises(UserError, match=r"has no checkpoint \(.safetensors, .pth"):
        open_checkpoint(tmp_path)
    first = save(tmp_path / "model-00001-of-00002.safetensors", {name: state[name] for name in names[:2]})
    assert read_tensors(tmp_path).keys() == set(names[:2]), "the only one there is"
    save(tmp_path / "model-00002-of-00002.safetensors", {name: state[name] for name in names[2:]})
    with pytest.raises(
        UserError, match=r"has 2 checkpoints \(model-00001-of-00002.safetensors, .*\); give one of them"
    ):
        open_checkpoint(tmp_path)
    where = {name: f"model-0000{1 + (place > 1)}-of-00002.safetensors" for place, name in enumerate(names)}
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": where}))
    assert read_tensors(tmp_path).keys() == state.keys()
    assert open_checkpoint(tmp_path, grid=GRID).naming == "Hugging Face ViT"
    for wrong, message in (("../x.safetensors", "not a file beside it"), ("absent.safetensors", "lacks absent")):
        index.write_text(json.dumps({"weight_map": where | {names[0]: wrong}}))
        with pytest.raises(UserError, match=message):
            open_checkpoint(tmp_path)
    index.write_text(json.dumps({"weight_map": where | {"absent": first.name}}))
    with pytest.raises(UserError, match="lacks 'absent', which its index names"):
        open_checkpoint(tmp_path)
    for text in ("[]", "{", "{}", "[" * 100000):
        index.write_text(text)
        with pytest.raises(UserError, match="fetch it again"):
            open_checkpoint(tmp_path)


# Files that are not to be trusted


class Hostile:
    """A pickle that writes a file when it is unpickled by someone trusting."""

    def __init__(self, target):
        self.target = target

    def __reduce__(self):
        return (open, (str(self.target), "w"))


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("suffix", [".pth", ".bin", ".safetensors", ".npz"])
def test_code_in_a_pickle_is_refused_and_not_run(tmp_path, suffix, legacy):
    target = tmp_path / "written"
    path = tmp_path / f"x{suffix}"
    torch.save(vit() | {"x": Hostile(target)}, path, _use_new_zipfile_serialization=not legacy)
    with pytest.raises(
        UserError, match=r"wants io.open of Python to be run while it is read, which was not done; save"
    ):
        open_checkpoint(path)
    path.write_bytes(pickle.dumps(Hostile(target)))
    with pytest.raises(UserError):
        open_checkpoint(path)
    np.save(array := io.BytesIO(), np.array([Hostile(target)], dtype=object), allow_pickle=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("pos_embed.npy", array.getvalue())
    with pytest.raises(UserError, match="holds Python objects, which are not run"):
        open_checkpoint(path)
    assert not target.exists()
    pickle.loads(pickle.dumps(Hostile(target))).close()
    assert target.exists(), "as it would have been"


def one_line_about(path, match, **options):
    with warnings.catch_warnings(action="error"), pytest.raises(UserError, match=match) as caught:
        open_checkpoint(path, **options)
    assert_one_line(caught.value, path)


def assert_one_line(error, path):
    message = str(error)
    assert message.isprintable() and len(message) < 600 + len(str(path)) and str(path) in message


def npy(shape, content=b"", kind="<f4"):
    header = f"{{'descr': {kind!r}, 'fortran_order': False, 'shape': {shape!r}, }}".encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + content


def zipped(path, members, method=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def test_claims_of_size_are_refused_before_anything_is_allocated(tmp_path):
    huge = {"pos_embed": {"dtype": "F32", "shape": [1, 10**6, 10**6], "data_offsets": [0, 4 * 10**12]}}
    header = json.dumps(huge).encode()
    path = tmp_path / "x.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header + b"\0" * 64)
    one_line_about(path, "is damaged or truncated")
    path.write_bytes(struct.pack("<Q", 10**10) + header)
    one_line_about(path, "is damaged or truncated")
    path = zipped(tmp_path / "x.npz", {"pos_embed.npy": npy((10**6, 10**6))})
    one_line_about(path, r"claims 4,000,000,000,000 bytes of numbers and has 0")
    one_line_about(zipped(path, {"pos_embed.npy": npy((-3, 5))}), "damaged|claims")
    bomb = npy((10**8 // 4,), bytes(10**8))
    one_line_about(zipped(path, {"a.npy": bomb}, zipfile.ZIP_DEFLATED), r"would unpack from .* to 100,000,128 bytes")
    one_line_about(
        zipped(path, {"x/data.pkl": bytes(10**6)}, zipfile.ZIP_DEFLATED), "is compressed, as torch never saves"
    )
    save(path := tmp_path / "x.pth", {"pos_embed": torch.zeros(1, 1, 1).expand(1, 10**6, 10**6)})
    one_line_about(path, r"pos_embed claims 4,000,000,000,000 bytes, more than the whole file")
    save(path, {"pos_embed": torch.zeros(1, 123457)}, _use_new_zipfile_serialization=False)
    written = path.read_bytes()
    assert written.count(struct.pack("<i", 123457)) >= 2
    path.write_bytes(written.replace(struct.pack("<i", 123457), struct.pack("<i", 2**31 - 1)))
    one_line_about(path, "more than the whole file")


def test_what_is_no_checkpoint_gets_one_clear_line(tmp_path):
    path = tmp_path / "x.safetensors"
    one_line_about(path, "there is no .*; give a ViT checkpoint")
    for content, message in {
        b"": "is empty; fetch it again",
        b"a letter to a friend, renamed": "by its first bytes; give a ViT checkpoint",
        b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n": "only a pointer of Git LFS.*git lfs pull",
        b"<!DOCTYPE html><html>": "is a web page",
        b"\x89HDF\r\n\x1a\n": "is an HDF5 file",
        b"PK\x03\x04 and no more": "damaged or truncated",
        b"\x80\x02.": "damaged or truncated",
        pickle.dumps({"pos_embed": [1.0]}): "a pickle that torch did not write and that is not run",
    }.items():
        path.write_bytes(content)
        one_line_about(path, message)
    one_line_about(zipped(path, {"letter.txt": "hello"}), "is a zip without tensors")
    one_line_about(save(tmp_path / "a.pth", drawn(3)), "holds no tensors by name")
    one_line_about(save(tmp_path / "b.pth", [vit()]), "holds no tensors by name")
    one_line_about(save(tmp_path / "c.pth", of_timm("resnet10t")), "is no vision transformer that we know by its names")
    with warnings.catch_warnings(action="ignore"):
        torch.jit.script(torch.nn.Linear(2, 2)).save(tmp_path / "d.pt")
    one_line_about(tmp_path / "d.pt", "is a TorchScript program, which is not run")
    torch.save(torch.nn.Linear(2, 2), tmp_path / "e.pt")
    one_line_about(tmp_path / "e.pt", "wants torch.nn.modules.linear.Linear of Python to be run")


ODD = ["a\nb", "\x1b[31mred\x1b[0m", "\u202eright to left", "$\\frac$", "\ud800", "long" * 90]


@pytest.mark.parametrize("odd", ODD)
def test_a_foreign_name_cannot_break_the_line_that_it_is_printed_in(tmp_path, odd):
    bias = f"{odd}.0.attn.relative_position_bias_table"
    for state in (
        {odd: drawn(3), f"{odd}2": drawn(3)},
        {bias: drawn(45, HEADS)},
        {bias: drawn(4)},
        {bias: torch.full((45, HEADS), torch.nan)},
        {f"{odd}.rel_pos_h": drawn(5, 4)},
        vit() | {f"{odd}.freqs": torch.full((2, 4), torch.nan)},
        {f"pos_embed.{odd}": torch.zeros(1).expand(10**6)},
    ):
        one_line_about(save(tmp_path / "x.pth", state), "no vision|gives? --grid|no tables? of|NaN|claims|holds no")
    state = vit() | {
        bias: drawn(45, HEADS),
        f"{odd}.rope.freqs_cos": drawn(3),
        f"{odd}.relative_position_index": drawn(3),
    }
    save(tmp_path / "pytorch_model.bin", hugging_face(state))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": odd, "architecture": f"eva02{odd}"}))
    found = open_checkpoint(tmp_path, grid=GRID)
    printed = [found.naming, found.grid_source, found.axes, *found.encodings.values(), *found.tokens]
    assert all(text.isprintable() and len(text) < 200 for text in printed), "names that are said"
    assert all(name.isprintable() and "$" not in name for name in found.relative) and found.relative


@pytest.mark.parametrize(("name", "options"), FORMATS[:4])
@pytest.mark.parametrize("kept", [0.1, 0.5, 0.9, 0.999])
def test_a_truncated_file_says_so(tmp_path, name, options, kept):
    path = save(tmp_path / name, vit(), **options)
    content = path.read_bytes()
    path.write_bytes(content[: int(kept * len(content))])
    one_line_about(path, "damaged or truncated|fetch it again", grid=GRID)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"pos_embed": torch.full((1, 16, DIM), torch.nan)},
            r"pos_embed has 128 of 128 values that are NaN or infinite",
        ),
        ({"pos_embed": torch.full((1, 16, DIM), torch.inf)}, "NaN or infinite"),
        ({"pos_embed": drawn(1, 16, 5)}, "has vectors of 5, and patches become 8"),
        ({"pos_embed": drawn(DIM)}, r"is \(8,\), no table of position vectors"),
        ({"pos_embed": drawn(1, 1, 1, 16, DIM)}, "no table of position vectors"),
        ({"pos_embed": drawn(1, 0, DIM)}, "no table of position vectors"),
        ({"pos_embed": torch.ones(1, 16, DIM, dtype=torch.int8)}, "holds int8 values; give weights in floating point"),
        ({"pos_embed": torch.ones(1, 16, DIM, dtype=torch.complex64)}, "holds complex64 values"),
        ({"patch_embed.proj.weight": drawn(DIM, 3, 2, 2, 2)}, "no projection of patches of a picture"),
        ({"blocks.0.attn.relative_position_bias_table": drawn(4)}, "no table of \\(offsets, heads\\)"),
        ({"blocks.0.attn.rel_pos_h": drawn(5, 4)}, "are no tables of"),
        ({"blocks.0.attn.relative_position_bias_table": drawn(2, HEADS)}, "no table of \\(offsets, heads\\)"),
        ({"blocks.0.attn.relative_position_bias_table": drawn(0, 5, 9)}, "no table of \\(heads, 2R-1, 2C-1\\)"),
        ({"blocks.0.attn.rel_pos_h": drawn(5, 0), "blocks.0.attn.rel_pos_w": drawn(9, 0)}, "are no tables of"),
        ({"freqs": torch.full((2, 2, 4), torch.nan)}, "freqs has 16 of 16 values that are NaN"),
        ({"freqs": torch.full((2, 2, 4), -2e6)}, r"freqs has values up to 2e\+06, which no training gives"),
        ({"pos_embed": torch.full((1, 16, DIM), 1e38)}, r"values up to 1e\+38, which no training gives"),
        ({"rope_embed.periods": torch.tensor([1.0, 0.0])}, "has a period of 0, which is no wave"),
        ({"rope_embed.periods": torch.tensor([1.0, -3.0])}, "has a period of -3, which is no wave"),
        ({"rope_embed.periods": torch.tensor([1.0, 1e-38])}, "has a period of 1e-38, which is no wave"),
        ({"rope_embed.periods": torch.tensor([1.0, torch.inf])}, "periods has 1 of 2 values that are NaN or infinite"),
        ({"pos_embed_y": drawn(1, DIM).expand(60000, -1), "pos_embed_x": drawn(60000, DIM)}, "no tables of rows"),
        ({"pos_embed_y": drawn(0, DIM), "pos_embed_x": drawn(3, DIM)}, "no tables of rows and columns"),
    ],
)
def test_tables_that_cannot_be_right_get_one_clear_line(tmp_path, change, message):
    one_line_about(save(tmp_path / "x.pth", vit() | change), message, grid=GRID)


def test_a_small_file_cannot_ask_for_much_work(tmp_path):
    state = vit() | {"pos_embed": drawn(1, 65536, 8), "reg_token": torch.zeros(1, 10**12, 0)}
    began = time.process_time()
    path = save(tmp_path / "x.safetensors", state)
    assert open_checkpoint(path, grid=(256, 256)).tokens == ("CLS",)
    one_line_about(path, "65536 places")
    table = torch.cat([torch.zeros(1, 8), mae((240, 273), 8)])[None]
    assert open_checkpoint(save(path, state | {"pos_embed": table})).grid == (240, 273), "one of 96 factorisations"
    assert time.process_time() - began < 5


def test_a_nan_that_has_nothing_to_do_with_position_does_not_matter(tmp_path):
    state = vit() | {"blocks.0.mlp.fc1.weight": torch.full((4, 4), torch.nan)}
    assert open_checkpoint(save(tmp_path / "x.pth", state), grid=GRID).grid == GRID


def mutants(content, generator):
    """Ways in which a file goes bad: bytes flipped, cut off, appended, zeroed, moved, numbers of its header changed."""
    size = len(content)
    places = torch.randint(size, (8,), generator=generator).tolist()
    start, end = sorted(places[:2])
    flipped = bytearray(content)
    for place in places:
        flipped[place] ^= 1 << (place % 8)
    head = bytearray(content)
    for place in places:
        head[place % min(size, 400)] = place % 256
    tail = bytearray(content)
    for place in places:
        tail[-1 - place % min(size, 400)] = place % 256
    yield bytes(flipped)
    yield content[:start]
    yield content + content[start:end] + b"\0"
    yield content[:start] + bytes(end - start) + content[end:]
    yield content[start:] + content[:start]
    yield content[:start] + content[end:]
    yield bytes(head)
    yield bytes(tail)
    digits = [place for place in range(min(size, 4000)) if content[place : place + 1].isdigit()]
    yield bytes(
        57 if place in digits[places[0] % max(len(digits), 1) :][:2] else byte for place, byte in enumerate(content)
    )


@pytest.mark.parametrize(("name", "options"), FORMATS[:4])
def test_mutated_files_give_a_result_or_one_line_and_nothing_else(tmp_path, name, options):
    """More than 400 files in all; also those of one format under the name of another."""
    generator = torch.Generator().manual_seed(len(name))
    state = vit(depth=1) | {"blocks.0.attn.relative_position_bias_table": drawn(45, HEADS), "freqs": drawn(2, 1, 4)}
    content = save(tmp_path / name, state, **options).read_bytes()
    refused = read = 0
    seen = set()
    for number in range(12):
        for mutant in mutants(content, generator):
            path = tmp_path / f"mutant{FORMATS[number % 4][0][1:]}"
            path.write_bytes(mutant)
            try:
                with warnings.catch_warnings(action="error"):
                    open_checkpoint(path, grid=GRID)
                    look_inside(recognise(read_contents(path), grid=GRID), seen)
                read += 1
            except UserError as error:
                assert_one_line(error, path)
                refused += 1
    assert read + refused == 108 and refused > 30 and seen


def look_inside(found, seen, *, looks=6, tables=2):
    """All the way to the figures, where its numbers were not seen before; few times, as figures take longest."""
    subject = of_checkpoint(found)
    tensors = [tensor for tensor in (subject.table, *subject.biases.values(), subject.waves) if tensor is not None]
    numbers = b"".join(tensor.numpy().tobytes() for tensor in tensors)
    json.dumps(subject.about).encode()
    if numbers in seen or len(seen) >= looks:
        return
    seen.add(numbers)
    taken = [look_at_offsets(subject.biases, subject.waves)] if subject.biases or subject.waves is not None else []
    if subject.table is not None and len(seen) <= tables:
        taken.append(look_at_table(subject.table))
    for look in taken:
        json.dumps(look.numbers)


STATE = {
    "pos_embed": drawn(1, 1 + PLACES, DIM),
    "blocks.0.attn.relative_position_bias_table": drawn(45, HEADS),
    "blocks.1.attn.relative_position_index": swin_index(GRID),
    "blocks.1.attn.rel_pos_h": drawn(5, 4),
    "blocks.1.attn.rel_pos_w": drawn(9, 4),
    "blocks.1.attn.cpb_mlp.0.weight": drawn(6, 2),
    "blocks.1.attn.cpb_mlp.0.bias": drawn(6),
    "blocks.1.attn.cpb_mlp.2.weight": drawn(HEADS, 6),
    "blocks.1.attn.relative_coords_table": drawn(1, 5, 9, 2),
    "freqs": drawn(2, 1, 4),
    "freqs_t_x": torch.arange(PLACES) % 5,
    "freqs_t_y": torch.arange(PLACES) // 5,
    "rope_embed.periods": torch.tensor([1.0, 10.0]),
    "rope.freqs_cos": (AXIAL := torch.stack([torch.arange(PLACES) // 5, torch.arange(PLACES) % 5], 1)).cos(),
    "rope.freqs_sin": AXIAL.sin(),
    "reg_token": drawn(1, 2, DIM),
    "patch_embed.proj.weight": drawn(DIM, 3, 2, 4),
}
HIDDEN = {  # rotary encodings that would be found before the one that is changed
    "rope_embed.periods": (),
    "rope.freqs_cos": ("rope_embed.periods", "freqs"),
    "rope.freqs_sin": ("rope_embed.periods", "freqs"),
}
CHANGES = {
    "zeros": torch.zeros_like,
    "ones": torch.ones_like,
    "tiny": lambda tensor: torch.full_like(tensor, 1e-42),
    "huge": lambda tensor: torch.full_like(tensor, 3e38) * torch.sign(tensor),
    "large": lambda tensor: 1e5 * tensor,
    "one NaN": lambda tensor: tensor.flatten().index_fill(0, torch.tensor([0]), torch.nan).view_as(tensor),
    "whole numbers": lambda tensor: tensor.long(),
    "half": lambda tensor: tensor.half(),
    "complex": lambda tensor: tensor.to(torch.complex64),
    "booleans": lambda tensor: tensor > 0,
    "scalar": lambda tensor: tensor.flatten()[0],
    "flat": torch.flatten,
    "nothing": lambda tensor: tensor[:0],
    "no width": lambda tensor: tensor[..., :0],
    "one axis more": lambda tensor: tensor[None],
    "turned over": lambda tensor: tensor.mT if tensor.ndim > 1 else tensor.flip(0),
    "one row": lambda tensor: tensor[:1],
    "twice": lambda tensor: torch.cat([tensor, tensor]),
}


@pytest.mark.parametrize("name", STATE)
def test_mutated_tensors_give_a_result_or_one_line_and_nothing_else(tmp_path, name):
    hidden = HIDDEN.get(name, ("rope_embed.periods",))
    whole = {key: tensor for key, tensor in (vit(depth=1) | STATE).items() if key not in hidden}
    contents = read_contents(save(tmp_path / "x.pth", whole))
    seen = set()
    for mutant in (*CHANGES.values(), *ODD):
        if callable(mutant):
            changed = whole | {name: mutant(whole[name].float())}
        else:
            changed = {f"{mutant}.{key}" if key == name else key: tensor for key, tensor in whole.items()}
        try:
            with warnings.catch_warnings(action="error"):
                look_inside(
                    recognise(replace(contents, tensors=changed), grid=GRID), seen, tables=8 * (name == "pos_embed")
                )
        except UserError as error:
            assert_one_line(error, contents.path)

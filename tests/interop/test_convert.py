"""Another grid or patch size of a model: what timm, Hugging Face, DINO, Swin and SAM compute, and where they are wrong."""

import importlib
import math

import pytest
import torch
import torch.nn.functional as F

from tests.interop.test_attach import randomize
from tests.interop.test_load import SMALL, huggingface_model, random_images
from tests.references import peer
from vitpos import Geometry, InputError, ViT
from vitpos.encodings import ENCODINGS
from vitpos.encodings._table_interpolation import resize_table
from vitpos.interop import to_huggingface, to_timm
from vitpos.interop.convert import resize, swap_encoding
from vitpos.interop.library_export import huggingface_files
from vitpos.interop.load import find_blueprint
from vitpos.interop.model_spec import ModelSpec
from vitpos.interop.patch_size import resample_projection, resize_matrix, resize_patches
from vitpos.interop.source_model import SourceModel, from_blueprint
from vitpos.interop.step_reports import (
    difference_at_new_size,
    difference_of_tokens,
    norm_ratio,
    position_tables,
    weights_changed,
)
from vitpos.lab.compare_modes import has_tables

GRIDS = [((14, 14), (24, 24)), ((14, 14), (7, 28)), ((24, 24), (14, 14)), ((4, 6), (6, 4)), ((4, 6), (5, 9))]


@pytest.fixture(scope="module")
def timm():
    return peer("timm")


def table_of(grid, dim=6, seed=0):
    return torch.randn(*grid, dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).float()


def source(encoding="learned", *, grid=(4, 6), patch=(4, 4), **options) -> SourceModel:
    """A model of ours with random weights in every parameter."""
    shape = (3, grid[0] * patch[0], grid[1] * patch[1])
    text = ", ".join(f"{key}={value!r}" for key, value in options.items())
    spec = ModelSpec(f"vit(patch={patch}, dim=32, depth=2, heads=2{', ' * bool(text)}{text})", encoding, shape, 5)
    return SourceModel(randomize(spec.build()), spec)


def foreign(module) -> SourceModel:
    return from_blueprint(find_blueprint(module), module)


def run(model, shape, seed=1):
    with torch.no_grad():
        return model(random_images(shape, seed).to(next(model.parameters()).dtype))


# Position tables, compared with other libraries


@pytest.mark.parametrize("mode", ["bicubic", "bilinear", "bicubic-antialias", "bilinear-antialias"])
@pytest.mark.parametrize(("old", "new"), GRIDS)
def test_a_table_is_resampled_as_timm_does_if_it_is_given_the_old_grid(timm, old, new, mode):
    table, prefix = table_of(old), torch.randn(1, 1, 6)
    kernel, _, antialias = mode.partition("-")
    theirs = timm.layers.resample_abs_pos_embed(
        torch.cat([prefix, table.flatten(0, 1)[None]], 1),
        list(new),
        list(old),
        interpolation=kernel,
        antialias=bool(antialias),
    )
    assert torch.equal(resize_table(table, new, mode=mode).flatten(0, 1), theirs[0, 1:])
    assert torch.equal(resize_table(table, new, mode="timm"), resize_table(table, new, mode="bicubic-antialias"))


@pytest.mark.parametrize(
    ("file", "config", "kind"), [("vit", "ViTConfig", "ViT"), ("dinov2", "Dinov2Config", "Dinov2")]
)
@pytest.mark.parametrize(("old", "new"), GRIDS[:3])
def test_a_square_table_is_resampled_as_hugging_face_does(file, config, kind, old, new):
    theirs = huggingface_model(file, config, f"{kind}Model", {"image_size": 16 * old[0], "hidden_size": 32})
    embeddings = randomize(theirs.embeddings, dtype=torch.float32)
    stored = embeddings.position_embeddings.detach()
    tokens = torch.zeros(1, 1 + new[0] * new[1], 32)
    found = embeddings.interpolate_pos_encoding(tokens, 16 * new[0], 16 * new[1]).detach()
    ours = resize_table(stored[0, 1:].unflatten(0, old), new, mode="hf")
    assert torch.equal(ours.flatten(0, 1), found[0, 1:])


def published_dino(table, new, offset=0.1, antialias=False):
    """The code of DINO and DINOv2: the size is given as a scale, which torch then uses for the coordinates."""
    rows, columns, _ = table.shape
    scale = ((new[0] + offset) / rows, (new[1] + offset) / columns)
    image = table.permute(2, 0, 1)[None]
    return F.interpolate(image, scale_factor=scale, mode="bicubic", antialias=antialias)[0].permute(1, 2, 0)


@pytest.mark.parametrize(("old", "new"), GRIDS)
def test_the_offset_of_dino_is_reproduced(old, new):
    table = table_of(old)
    assert torch.equal(resize_table(table, new, mode="dino"), published_dino(table, new))
    ours = resize_table(table, new, mode="bicubic-antialias-offset")
    assert torch.equal(ours, published_dino(table, new, antialias=True))
    assert (resize_table(table, new, mode="dino") - resize_table(table, new, mode="hf")).abs().max() > 0.05


def test_an_offset_goes_with_neither_aligned_corners_nor_area():
    for mode in ("bicubic-align_corners-offset", "area-offset"):
        with pytest.raises(InputError, match="leave"):
            resize_table(table_of((2, 2)), (3, 3), mode=mode)


def test_tables_of_windows_are_resampled_as_timm_does(timm):
    """Swin at another size with another window, by timm's loading of a checkpoint."""
    sizes = {"embed_dim": 24, "depths": (2, 1), "num_heads": (2, 4), "num_classes": 5}
    small = randomize(timm.create_model("swin_tiny_patch4_window7_224", img_size=112, window_size=7, **sizes))
    filtered = importlib.import_module("timm.layers.pos_embed_rel").resize_rel_pos_bias_table_simple
    ours = resize(foreign(small), grid=(48, 24), window=(12, 12), mode="hf")
    for name, tensor in small.state_dict().items():
        if name.endswith("bias_table"):
            expected = filtered(tensor, (12, 12), (23 * 23, tensor.shape[1]))
            assert torch.allclose(to_timm(ours.model)[name], expected, atol=1e-12)
    large = (
        timm.create_model("swin_tiny_patch4_window7_224", img_size=(192, 96), window_size=12, **sizes).double().eval()
    )
    large.load_state_dict(to_timm(ours.model), strict=True)
    assert (run(ours.model, (3, 192, 96)) - run(large, (3, 192, 96))).abs().max() < 1e-10


@pytest.mark.parametrize("new", [(8, 8), (9, 4), (3, 12), (6, 4)])
def test_decomposed_positions_are_resampled_as_sam_does(timm, new):
    get_rel_pos = importlib.import_module("timm.models.vision_transformer_sam").get_rel_pos
    geometry = Geometry(dim=16, heads=2, depth=1, grid=(4, 6))
    encoding = randomize(ENCODINGS.build("decomposed", geometry))
    ours = encoding.resized(new, mode="bilinear")
    for name, side in zip(("rows", "columns"), new, strict=True):
        offsets = torch.arange(side)[:, None] - torch.arange(side)[None, :] + side - 1
        found = getattr(ours, name).detach()[0][offsets]
        assert torch.allclose(found, get_rel_pos(side, side, getattr(encoding, name).detach()[0]), atol=1e-12)


# Silent errors of other libraries, each with what is right


def test_timm_leaves_a_table_as_it_is_on_another_grid_of_as_many_patches(timm):
    theirs = randomize(timm.create_model("vit_small_patch16_224", img_size=(64, 96), **SMALL))
    ours = foreign(theirs)
    before = theirs.pos_embed.detach().clone()
    theirs.set_input_size(img_size=(96, 64))
    assert torch.equal(theirs.pos_embed, before)  # the error: rows of six patches are read as rows of four
    right = resize(ours, grid=(6, 4), mode="timm").model.encoding.table[0].flatten(0, 1)
    assert (right - before[0, 1:]).abs().max() > 0.1
    expected = timm.layers.resample_abs_pos_embed(before, [6, 4], [4, 6])[0, 1:]
    assert torch.allclose(right.float(), expected.float(), atol=1e-6)


def test_timm_loads_a_checkpoint_of_another_grid_of_as_many_patches_unchanged(timm):
    wide, high = (timm.create_model("vit_small_patch16_224", img_size=s, **SMALL) for s in ((64, 96), (96, 64)))
    filtered = timm.models.vision_transformer.checkpoint_filter_fn(randomize(wide).state_dict(), high)
    assert torch.equal(filtered["pos_embed"], wide.pos_embed)  # the error
    ours = resize(foreign(wide), grid=(6, 4))
    assert (to_timm(ours.model)["pos_embed"] - wide.pos_embed).abs().max() > 0.1


def test_timm_reads_a_table_of_4x16_as_8x8_if_it_is_not_given_the_grid(timm):
    table = table_of((4, 16))
    theirs = timm.layers.resample_abs_pos_embed(table.flatten(0, 1)[None], [8, 32], num_prefix_tokens=0)
    as_square = resize_table(table.flatten(0, 1).unflatten(0, (8, 8)), (8, 32), mode="timm")
    assert torch.equal(theirs[0], as_square.flatten(0, 1))  # the error
    assert (resize_table(table, (8, 32), mode="timm") - as_square).abs().max() > 0.5


def test_timm_reads_the_table_of_windows_of_2x14_as_that_of_5x5(timm):
    simple = importlib.import_module("timm.layers.pos_embed_rel").resize_rel_pos_bias_table_simple
    table = table_of((3, 27), 2)  # offsets of windows of 2×14
    theirs = simple(table.flatten(0, 1), (4, 14), (7 * 27, 2))
    as_square = resize_table(table.flatten(0, 1).unflatten(0, (9, 9)), (7, 27), mode="hf")
    assert torch.allclose(theirs, as_square.flatten(0, 1), atol=1e-5)  # the error
    assert (resize_table(table, (7, 27), mode="hf") - as_square).abs().max() > 0.5


def test_hugging_face_reads_a_dinov2_table_of_4x16_as_8x8():
    theirs = huggingface_model("dinov2", "Dinov2Config", "Dinov2Model", {"image_size": 128})
    square = foreign(randomize(theirs))
    ours = resize(square, grid=(4, 16))
    theirs.config.image_size = (64, 256)
    wide = type(theirs)(theirs.config).double().eval()
    wide.load_state_dict(to_huggingface(ours.model), strict=True)
    added = wide.embeddings.interpolate_pos_encoding(torch.zeros(1, 65, 32), 64, 256)
    table = ours.model.encoding.table[0].float()
    as_square = resize_table(table.flatten(0, 1).unflatten(0, (8, 8)), (4, 16), mode="hf")
    assert torch.allclose(added[0, 1:].float(), as_square.flatten(0, 1), atol=1e-6)  # the error, at its own size
    assert (as_square - table).abs().max() > 0.1
    with pytest.raises(InputError, match=r"DINOv2 has square grids only, not 4x16; use the format 'timm' or 'vitpos'"):
        huggingface_files(ours)


def test_hugging_face_interpolates_a_vit_table_of_4x16_as_8x8():
    theirs = huggingface_model("vit", "ViTConfig", "ViTModel", {"image_size": (64, 256)})
    embeddings = randomize(theirs.embeddings, dtype=torch.float32)
    stored = embeddings.position_embeddings.detach()[0, 1:]
    found = embeddings.interpolate_pos_encoding(torch.zeros(1, 1 + 8 * 32, 32), 128, 512).detach()[0, 1:]
    as_square = resize_table(stored.unflatten(0, (8, 8)), (8, 32), mode="hf").flatten(0, 1)
    assert torch.equal(found, as_square)  # the error
    right = resize_table(stored.unflatten(0, (4, 16)), (8, 32), mode="hf").flatten(0, 1)
    assert (right - as_square).abs().max() > 0.5


def test_vit_pytorch_gives_a_narrow_image_the_first_rows_of_the_table():
    theirs = peer("vit_pytorch").ViT(
        image_size=32, patch_size=8, num_classes=3, dim=32, depth=1, heads=1, mlp_dim=8, dim_head=8
    )
    inputs, x = [], torch.randn(1, 3, 32, 16)
    theirs.eval().transformer.register_forward_pre_hook(lambda module, args: inputs.append(args[0]))
    theirs(x)
    added = (inputs[0][0, 1:] - theirs.to_patch_embedding(x)[0]).detach()
    table = theirs.pos_embedding.detach().reshape(17, 32)[1:]
    assert torch.allclose(added, table[:8], atol=1e-5)  # the error: two rows of four, for four rows of two
    right = resize_table(table.unflatten(0, (4, 4)), (4, 2), mode="area").flatten(0, 1)
    assert (right - table[:8]).abs().max() > 0.5


def test_bicubic_of_timm_is_another_one_than_that_of_hugging_face_also_when_enlarging(timm):
    table = table_of((7, 7))
    theirs = timm.layers.resample_abs_pos_embed(table.flatten(0, 1)[None], [14, 14], [7, 7], num_prefix_tokens=0)
    assert torch.equal(theirs[0], resize_table(table, (14, 14), mode="timm").flatten(0, 1))
    assert (theirs[0] - resize_table(table, (14, 14), mode="hf").flatten(0, 1)).abs().max() > 0.1


# Models


def test_another_grid_changes_the_table_alone_and_fits_images_of_that_size():
    before = source("learned(prefix_embed=True)")
    for grid in ((6, 4), (8, 12), (3, 2)):
        after = resize(before, grid=grid)
        changed = weights_changed(before.model.state_dict(), after.model.state_dict())
        assert changed["tensors_changed"] == 1 and changed["tensors_new"] == changed["tensors_removed"] == 0
        assert run(after.model, after.spec.image_shape).shape == (2, 5) and not after.model.training
        assert after.spec.image_shape == (3, grid[0] * 4, grid[1] * 4)
    same = resize(before, grid=(4, 6))
    assert weights_changed(before.model.state_dict(), same.model.state_dict())["tensors_changed"] == 0


@pytest.mark.parametrize(
    "encoding", ["rope", "rope_mixed", "alibi", "cpb", "rope(normalized=True)", "learned + rope", "fire"]
)
def test_interpolated_coordinates_give_what_the_original_computes_for_images_of_the_new_size(encoding):
    before = source(encoding)
    after = resize(before, grid=(8, 12), mode="hf")
    assert difference_at_new_size(before.model, after.model, after.spec.image_shape) < 1e-12
    assert after.spec.options["train_grid"] == (4, 6)
    again = after.spec.build().double().eval()
    again.load_state_dict(after.model.state_dict())
    assert torch.equal(run(again, after.spec.image_shape), run(after.model, after.spec.image_shape))
    back = resize(after, grid=(4, 6), mode="hf")
    assert "train_grid" not in back.spec.term.options


@pytest.mark.parametrize("encoding", ENCODINGS.builtin)
@pytest.mark.parametrize("grid", [(5, 9), (3, 8)])  # the second has as many patches as before
def test_every_encoding_is_resized_as_a_model_resizes_itself(encoding, grid):
    before = source(encoding, pool="mean", registers=1)
    after = resize(before, grid=grid, mode="bicubic").model
    expected = before.model.resized(grid, mode="bicubic")
    shape = (3, grid[0] * 4, grid[1] * 4)
    assert (run(after, shape) - run(expected, shape)).abs().max() < 1e-10


ROTARY = [
    ("vit_small_patch16_dinov3", {"img_size": (32, 64)}),
    ("vit_small_patch16_rope_224", {"img_size": (32, 64)}),
    ("vit_small_patch16_rope_mixed_ape_224", {"img_size": (32, 64)}),
    ("eva02_base_patch16_clip_224", {"img_size": (32, 64)}),
]


@pytest.mark.parametrize(("name", "options"), [("vit_small_patch16_224", {"img_size": (32, 64)}), *ROTARY])
def test_rebuilt_for_another_grid_it_is_timms_model_of_that_size(timm, name, options):
    theirs = randomize(timm.create_model(name, **SMALL | options), dtype=torch.float32)
    for grid in ((4, 2), (3, 5)):
        ours = resize(foreign(theirs), grid=grid, coords="rebuild")
        larger = timm.create_model(name, **SMALL | options | {"img_size": (16 * grid[0], 16 * grid[1])}).eval()
        larger.load_state_dict(to_timm(ours.model), strict=True)
        shape = (3, 16 * grid[0], 16 * grid[1])
        assert (run(larger, shape) - run(ours.model, shape)).abs().max() < 1e-5


def test_ntk_scaling_lowers_the_frequencies_and_is_part_of_the_spec():
    before = source("learned + rope(base=50.0)")
    after = resize(before, grid=(8, 12), coords="ntk")
    assert after.spec.encoding == "learned + rope(base=50.0, ntk_factor=2.0)"
    expected = before.model.encoding.parts[1].ntk_scaled(2.0)
    assert after.model.encoding.parts[1].base == pytest.approx(expected.base)
    assert resize(after, grid=(16, 24), coords="ntk").spec.encoding.endswith("ntk_factor=4.0)")
    assert resize(after, grid=(4, 6), coords="ntk").spec.encoding == before.spec.encoding  # there and back
    with pytest.raises(InputError, match="coords 'ntk' is for encodings with NTK scaling"):
        resize(source("learned"), grid=(8, 8), coords="ntk")


@pytest.mark.parametrize(
    ("encoding", "grid", "message"),
    [
        ("rope", (8, 6), "one factor for rows and columns, which change from 4x6 to 8x6"),
        ("rope(normalized=True)", (8, 12), "scales coordinates of every grid to one range; use coords 'rebuild'"),
        ("learned + rope(ref_grid=(4, 6))", (8, 12), "scales coordinates of every grid to one range"),
    ],
)
def test_ntk_scaling_that_does_not_suit_the_grid_or_the_encoding_is_refused(encoding, grid, message):
    with pytest.raises(InputError, match=message):
        resize(source(encoding), grid=grid, coords="ntk")


@pytest.mark.parametrize(
    ("encoding", "shapes"),
    [
        ("learned", [(24, 32)]),
        ("learned + rope_mixed", [(24, 32)]),
        ("rope_mixed", []),
        ("cpb", []),
        ("sape2", []),
        ("none", []),
    ],
)
def test_a_position_table_is_what_resampling_changes(encoding, shapes):
    model = source(encoding).model
    assert [tuple(table.shape) for table in position_tables(model).values()] == shapes
    assert has_tables(model) == bool(shapes)
    assert norm_ratio(model, model) == pytest.approx(1 if shapes else math.nan, nan_ok=True)


def test_the_norm_ratio_is_that_of_the_vectors_of_entries():
    before = source("relative")
    with torch.no_grad():
        for parameter in before.model.encoding.parameters():
            parameter.fill_(1.0)
    assert norm_ratio(before.model, resize(before, grid=(9, 7)).model) == pytest.approx(1)


# Patch sizes


@pytest.mark.parametrize("new", [(32, 32), (8, 8), (14, 14), (16, 8)])
@pytest.mark.parametrize("mode", ["bicubic-antialias", "bilinear-antialias", "bilinear"])
def test_a_patch_projection_is_resampled_as_timm_does(timm, new, mode):
    weight = torch.randn(5, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    kernel, _, antialias = mode.partition("-")
    theirs = timm.layers.resample_patch_embed(weight, list(new), interpolation=kernel, antialias=bool(antialias))
    ours = resample_projection(weight, new, mode)
    assert (ours - theirs).abs().max() < 2e-3 * theirs.abs().max()  # timm inverts the matrix in float32


@pytest.mark.parametrize("mode", ["bicubic-antialias", "bilinear-antialias"])
def test_the_projection_is_that_of_the_pseudo_inverse_of_the_whole_matrix(mode):
    weight = torch.randn(2, 1, 6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for new in ((9, 8), (3, 4), (3, 6)):
        rows, columns = (resize_matrix(a, b, mode) for a, b in zip((6, 4), new, strict=True))
        whole = torch.linalg.pinv(torch.kron(rows.contiguous(), columns.contiguous()))  # (24, new)
        expected = (weight.flatten(2) @ whole).unflatten(2, new)
        assert torch.allclose(resample_projection(weight, new, mode), expected, atol=1e-10)


def test_larger_patches_give_the_same_outputs_on_images_whose_patches_are_enlarged():
    before = source("learned + rope", grid=(3, 5))
    after = resize(before, patch=(8, 6), grid=(3, 5))
    assert difference_of_tokens(before.model, after.model, "bilinear-antialias") < 1e-10
    x = random_images((3, 12, 20))
    cells = x.unflatten(3, (5, 4)).unflatten(2, (3, 4)).transpose(3, 4)  # (B, C, R, C', 4, 4)
    larger = resize_patches(cells, (8, 6), "bilinear-antialias").transpose(3, 4).flatten(4).flatten(2, 3)
    with torch.no_grad():
        assert (before.model(x) - after.model(larger)).abs().max() < 1e-10


def test_without_a_grid_images_keep_their_size_and_the_table_follows():
    after = resize(source("learned"), patch=(2, 8))
    assert after.spec.image_shape == (3, 16, 24) and after.model.geometry.grid == (8, 3)
    with pytest.raises(InputError, match="do not consist of patches of 5x5; give a grid too, such as 3x5"):
        resize(source("learned"), patch=(5, 5))


# Encodings


def test_another_encoding_keeps_the_other_weights_and_the_part_of_both_sums():
    before = source("learned + relative")
    after = swap_encoding(before, "rope + learned")
    assert torch.equal(after.model.encoding.parts[1].table, before.model.encoding.parts[0].table)
    for name, tensor in before.model.state_dict().items():
        assert name.startswith("encoding.") or torch.equal(after.model.state_dict()[name], tensor)


def test_a_kept_encoding_keeps_the_range_of_its_coordinates():
    larger = resize(source("rope"), grid=(8, 12))
    assert swap_encoding(larger, "learned + rope").spec.options["train_grid"] == (4, 6)
    assert swap_encoding(larger, "learned + alibi").spec.options["train_grid"] == (4, 6)
    assert swap_encoding(larger, "learned").spec.options["train_grid"] is None


@pytest.mark.parametrize("encoding", ["learned", "relative", "rope", "sape2", "learned + rope + sape2"])
def test_a_swap_to_the_same_encoding_changes_nothing_also_after_a_resize(encoding):
    larger = resize(source(encoding), grid=(7, 9))
    same = swap_encoding(larger, encoding)
    assert torch.equal(run(same.model, same.spec.image_shape), run(larger.model, larger.spec.image_shape))


def test_what_a_removed_encoding_adds_at_all_positions_is_kept():
    before = source("learned(prefix_embed=True)")
    table = before.model.encoding.table
    with torch.no_grad():
        table.copy_(table.mean((1, 2), keepdim=True).expand_as(table))  # the same vector everywhere
    after = swap_encoding(before, "none")
    shape = before.spec.image_shape
    assert (run(before.model, shape) - run(after.model, shape)).abs().max() < 1e-12


def test_an_encoding_of_ones_own_can_be_swapped_in_and_resized(tmp_path):
    (tmp_path / "own.py").write_text(
        "from torch import nn\nfrom vitpos import PositionEncoding\nimport torch\n\n\n"
        "class PerRow(PositionEncoding):\n    def __init__(self, geometry):\n        super().__init__()\n"
        "        self.rows = nn.Parameter(torch.randn(geometry.grid[0], geometry.dim))\n\n"
        "    def vectors(self, pos, layer, dtype):\n        return None if layer else self.rows[pos.index // pos.grid[1]]\n"
    )
    swapped = swap_encoding(source("learned"), f"{tmp_path / 'own.py'}:PerRow")
    assert run(swapped.model, swapped.spec.image_shape).shape == (2, 5)
    with pytest.raises(InputError, match="give the encoding a method 'resized'"):
        resize(swapped, grid=(5, 6), coords="rebuild")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"grid": (0, 4)}, "the grid 0x4 is too far from 4x6"),
        ({"grid": (400, 4)}, "the grid 400x4 is too far from 4x6"),
        ({"patch": (100, 100)}, "images of 16x24 pixels do not consist of patches of 100x100"),
        ({"grid": (8, 8), "mode": "cubic"}, "cannot resample with mode 'cubic'"),
        ({"grid": (8, 8), "window": (3, 3)}, "a window is for models with windows"),
    ],
)
def test_what_cannot_be_converted_is_refused_in_one_line(options, message):
    with pytest.raises(InputError, match=message):
        resize(source("learned"), **options)


def test_a_model_without_patches_has_no_grid():
    spec = ModelSpec("cnn(width=4)", "none", (3, 16, 16), 5)
    with pytest.raises(InputError, match="a CNN has no patches"):
        resize(SourceModel(spec.build(), spec), grid=(2, 2))


def test_a_vit_with_a_training_grid_is_the_resized_one():
    small = randomize(ViT((3, 16, 24), 5, "learned + rope", patch=4, dim=32, depth=2, heads=2))
    resized = small.resized((8, 9))
    built = ViT((3, 32, 36), 5, "learned + rope", patch=4, dim=32, depth=2, heads=2, train_grid=(4, 6)).double().eval()
    built.load_state_dict(resized.state_dict())
    assert torch.equal(run(built, (3, 32, 36)), run(resized, (3, 32, 36)))
    with pytest.raises(InputError, match="train_grid="):
        ViT((3, 32, 36), 5, train_grid=(0, 6))

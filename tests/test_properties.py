"""Claims of the papers, right or wrong, as properties."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.references import peer
from vitpos.encodings import ENCODINGS
from vitpos.encodings._interp1d import interp1d
from vitpos.encodings._sape2_fused import AddDistances
from vitpos.encodings._table import resize_table
from vitpos.encodings.base import Geometry
from vitpos.models import MODELS
from vitpos.models.attention import attention, attention_logits, double_backward_attention, embed
from vitpos.positions import Positions

GRID, N = (4, 6), 24


def build(spec, prefix=0):
    torch.manual_seed(0)
    encoding = ENCODINGS.build(spec, Geometry(32, 2, 1, GRID, prefix)).double()
    with torch.no_grad():
        for parameter in encoding.parameters():
            parameter.copy_(torch.randn_like(parameter))
    return encoding


def qk(n=N):
    generator = torch.Generator().manual_seed(5)
    return torch.randn(2, 2, 2, n, 16, generator=generator, dtype=torch.float64).unbind()


def sape2_part(axis):
    """SaPE2 with one of its two parts silent: its table zero, so that all its distances are."""
    encoding = build("sape2")
    with torch.no_grad():
        encoding.tables[1 - axis].zero_()
    return encoding


def moved(q, k, order):
    return q[:, :, order], k[:, :, order]


@pytest.mark.parametrize("axis", [0, 1])
def test_sape2_along_one_axis_is_equivariant_to_any_order_across_it(axis):
    encoding, (q, k), pos = sape2_part(axis), qk(), Positions.from_grid(GRID)
    cells = torch.arange(N).view(GRID)
    order = (cells[torch.randperm(4)] if axis == 0 else cells[:, torch.randperm(6)]).flatten()
    bias = encoding.bias(q, k, pos, 0)
    assert torch.allclose(encoding.bias(*moved(q, k, order), pos, 0), bias[:, :, order][..., order])


@pytest.mark.parametrize("axis", [0, 1])
def test_sape2_along_an_axis_is_not_equivariant_to_a_shift_along_it(axis):
    encoding, (q, k), pos = sape2_part(axis), qk(), Positions.from_grid(GRID)
    cells = torch.arange(N).view(GRID)
    order = cells.roll(2, 1 - axis).flatten()
    bias = encoding.bias(q, k, pos, 0)[:, :, order][..., order]
    error = (encoding.bias(*moved(q, k, order), pos, 0) - bias).norm() / bias.norm()
    assert error > 0.05


@pytest.mark.parametrize("spec", ["sape2", "alibi", "lookhere"])
def test_the_bias_of_a_token_with_itself_is_zero(spec):
    bias = build(spec).bias(*qk(), Positions.from_grid(GRID), 0)
    assert (bias.diagonal(dim1=2, dim2=3) == 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equal_vectors_are_at_distance_zero_with_gradients_of_zero_once_and_twice(dtype):
    z = torch.randn(1, 5, 4, dtype=dtype)
    z[:, 3] = z[:, 1]
    z.requires_grad_()
    total = AddDistances.apply(z.new_zeros(1, 5, 5), 1.0, z)
    assert total[0, 1, 3] == 0 and (total.diagonal(dim1=1, dim2=2) == 0).all()
    (gradient,) = torch.autograd.grad(total.square().sum() + total.sum(), z, create_graph=True)
    (second,) = torch.autograd.grad(gradient.square().sum(), z)
    assert gradient.isfinite().all() and second.isfinite().all()
    (pair,) = torch.autograd.grad(AddDistances.apply(z.new_zeros(1, 5, 5), 1.0, z)[0, 1, 3], z)
    assert not pair.any()


def test_distances_agree_with_cdist_and_their_gradients_with_differences():
    a, b = torch.randn(2, 3, 6, 4, dtype=torch.float64, requires_grad=True).unbind()
    expected = 0.5 * (torch.cdist(a, a) + torch.cdist(b, b))

    def distances(x, y):
        return AddDistances.apply(x.new_zeros(*x.shape[:2], x.shape[1]), 0.5, x, y)

    assert torch.allclose(distances(a, b), expected, atol=1e-6)
    x, y = (t.detach()[:1].clone().requires_grad_() for t in (a, b))

    def apart(x, y):
        return distances(x, y).triu(1)

    assert torch.autograd.gradcheck(apart, (x, y))
    assert torch.autograd.gradgradcheck(apart, (x, y))


@given(st.integers(2, 6), st.lists(st.floats(-3, 9), min_size=1, max_size=5))
@settings(max_examples=40)
def test_interpolation_is_linear_between_steps_and_exact_at_whole_steps(count, at):
    values = torch.randn(1, 1, 1, count, dtype=torch.float64)
    whole = interp1d(values, torch.arange(float(count))[None, None, None])
    assert torch.equal(whole, values)
    read = interp1d(values, torch.tensor(at, dtype=torch.float64)[None, None, None])[0, 0, 0]
    for value, place in zip(read, at, strict=True):
        place = min(max(place, 0), count - 1)
        low = min(int(place), count - 2)
        row = values[0, 0, 0]
        assert abs(value - (row[low] + (place - low) * (row[low + 1] - row[low]))) < 1e-9


@pytest.mark.parametrize("prefix", ["origin", "unrotated", "learned", "center"])
def test_prefix_mode_sets_the_origin_of_rotation_or_leaves_prefix_tokens_out(prefix):
    encoding, (q, k) = build(f"rope(prefix_mode='{prefix}')", prefix=1), qk(N + 1)

    def logits(pos):
        return attention_logits(q, k, encoding, pos, 0)

    here, there = logits(Positions.from_grid(GRID)), logits(Positions.from_grid(GRID).shift((1, 2)))
    assert torch.allclose(here[..., 1:, 1:], there[..., 1:, 1:]), "patch logits depend on offsets only"
    plain = q @ k.mT / 4
    if prefix == "unrotated":
        assert torch.allclose(here[..., 0, :], plain[..., 0, :]) and torch.allclose(here[..., 0], plain[..., 0])
    else:  # a patch at the origin gets the plain product with the prefix token
        place = (
            encoding.learned_origin.tolist()
            if prefix == "learned"
            else {"origin": (0.0, 0.0), "center": (1.5, 2.5)}[prefix]
        )
        same = logits(Positions.from_grid(GRID).with_coords(torch.tensor(place).expand(1, N, 2)))
        assert torch.allclose(same[..., 0, :], plain[..., 0, :], atol=1e-5)
        assert not torch.allclose(here[..., 0, 1:], plain[..., 0, 1:], atol=1e-3)


def test_ntk_scaling_keeps_the_fastest_pair_and_slows_the_slowest_by_its_factor():
    plain, scaled = build("rope"), build("rope(ntk_factor=4.0)")
    q = torch.zeros(1, 1, 2, 16, dtype=torch.float64)
    q[..., 0::2] = 1
    pos = Positions.from_grid((1, 2))
    angles = [
        torch.atan2(y[..., 1::2], y[..., 0::2])[0, 0, 1, :4]
        for y in (e.rotate(q, q, pos, 0)[0] for e in (plain, scaled))
    ]
    assert angles[0][0] == angles[1][0]
    assert torch.allclose(angles[0][-1] / angles[1][-1], torch.tensor(4.0, dtype=torch.float64))


def test_dino_changes_coordinates_in_training_only_and_keeps_all_layers_together():
    encoding, still = build("rope_dino(shift_coords=0.2, jitter_coords=1.3)"), build("rope_dino(rescale_coords=1.0)")
    x, pos, q = torch.zeros(2, N, 32), Positions.from_grid(GRID), qk()[0]
    assert encoding.eval().augment(x, pos)[1] is pos
    assert torch.equal(encoding.rotate(q, q, pos, 0)[0], still.rotate(q, q, pos, 0)[0])
    encoding.train()
    first, again = (encoding.augment(x, pos)[1] for _ in range(2))
    rotated = [encoding.rotate(q, q, pos, layer)[0] for pos in (first, again) for layer in (0, 1)]
    assert torch.equal(rotated[0], rotated[1]) and torch.equal(rotated[2], rotated[3]), "one draw for all layers"
    assert not torch.equal(rotated[0], rotated[2]), "and another for the next pass"
    both = build("learned + rope_dino").train()
    assert torch.equal(embed(both, x, both.augment(x, pos)[1], 0), embed(both.parts[0], x, pos, 0)), (
        "other encodings keep their coordinates"
    )


@pytest.mark.parametrize("factor", [100.0, 500.0])
def test_sape2_in_float32_does_not_depend_on_the_other_images_of_a_batch(factor):
    encoding = build("sape2").float()
    q, k = torch.randn(2, 3, 2, N, 16, generator=torch.Generator().manual_seed(0))
    wild = k.clone()
    wild[2, :, 4] *= factor
    pos = Positions.from_grid(GRID)
    for hook in (encoding.bias, encoding.fused_logits):
        assert torch.allclose(hook(q, k, pos, 0)[:2], hook(q, wild, pos, 0)[:2], atol=1e-5)
    half = encoding.bfloat16().bias(q.bfloat16(), k.bfloat16(), pos, 0).float()
    full = encoding.float().bias(q.bfloat16().float(), k.bfloat16().float(), pos, 0)
    assert (half - full).abs().max() < 0.1 * full.max()


def test_a_timm_table_with_a_cls_row_goes_in_and_comes_out_exactly():
    vision = peer("timm.models.vision_transformer")
    theirs = vision.VisionTransformer(
        img_size=(8, 12), patch_size=2, embed_dim=32, depth=2, num_heads=2, num_classes=5
    ).eval()
    ours = MODELS.build("vit(patch=2, dim=32, depth=2, heads=2)", (3, 8, 12), 5, "learned(prefix_embed=True)").eval()
    with torch.no_grad():
        theirs.pos_embed.normal_()
        ours.encoding.prefix_table.copy_(theirs.pos_embed[0, :1])
        ours.encoding.table.copy_(theirs.pos_embed[0, 1:].unflatten(0, GRID)[None])
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


@pytest.mark.parametrize("mode", ["bicubic", "bilinear", "area", "bicubic-antialias", "bilinear-antialias"])
@pytest.mark.parametrize("grid", [(8, 12), (2, 3), (3, 8), (24, 1)])
def test_every_resampling_mode_serves_every_grid_and_can_keep_norms(mode, grid):
    table = torch.randn(*GRID, 8)
    plain, kept = resize_table(table, grid, mode=mode), resize_table(table, grid, mode=f"{mode}-norm")
    assert plain.shape == (*grid, 8)
    assert torch.allclose(torch.nn.functional.cosine_similarity(plain, kept, -1), torch.ones(grid), atol=1e-4)
    lengths = resize_table(table.norm(dim=-1, keepdim=True), grid, mode=mode).clamp_min(0)
    assert torch.allclose(kept.norm(dim=-1, keepdim=True), lengths, atol=1e-4)
    same = resize_table(table, GRID, mode=mode)
    assert torch.equal(same, table)
    constant = torch.ones(*GRID, 2)
    assert torch.allclose(resize_table(constant, grid, mode=mode), torch.ones(*grid, 2), atol=1e-5)


@pytest.mark.parametrize("mode", ["bicubic", "bilinear", "area", "bicubic-antialias", "bilinear-antialias"])
@pytest.mark.parametrize("rows", [14, 3])
def test_a_table_one_cell_wide_is_resampled_as_one_of_several_equal_columns(mode, rows):
    table = torch.randn(7, 1, 8)
    for more in ("", "-norm"):
        several = resize_table(table.expand(-1, 4, -1), (rows, 4), mode=mode + more)
        assert torch.allclose(resize_table(table, (rows, 1), mode=mode + more), several[:, :1], atol=1e-5)
    wide = torch.randn(7, 3, 8)
    narrow = resize_table(resize_table(wide, (7, 1), mode=mode).expand(-1, 4, -1), (rows, 4), mode=mode)[:, :1]
    assert torch.allclose(resize_table(wide, (rows, 1), mode=mode), narrow, atol=1e-5)


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ("nearest", "cannot resample with mode 'nearest'"),
        ("bicubic-sharp", "cannot resample with mode 'bicubic-sharp'"),
        ("area-antialias", "'area' takes no -antialias"),
    ],
)
def test_an_unknown_resampling_mode_is_refused(mode, message):
    with pytest.raises(ValueError, match=message):
        resize_table(torch.randn(2, 2, 2), (4, 4), mode=mode)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("rope", "head width divisible by 4, not 6"),
        ("rope_mixed", "head width divisible by 4, not 6"),
        ("rope_dino", "head width divisible by 4, not 6"),
        ("rope_golden", "head width divisible by 4, not 6"),
        ("rope_spiral", "directions=4 .* divides half of the width"),
        ("string", "head width divisible by 4, not 6"),
        ("comrope(block_size=5)", "block_size=5 .* a divisor of the width"),
        ("pope(base=0.0)", "base=0"),
        ("goat(base=-1.0)", "base=-1"),
        ("goat(rank=3)", "a rank below half of the width"),
        ("liere(block_size=5)", "block_size=5 .* a divisor of the width"),
        ("cpe(layers=(7,))", "choose from 0 to 2"),
        ("cope(max_positions=1)", "2 or more"),
        ("sape2(max_positions=1)", "2 or more"),
        ("sinusoidal1d(temperature=0.0)", "temperature=0"),
        ("irpe(ratio=0.0)", "ratio=0"),
        ("cpb(hidden_dim=0)", "hidden_dim=0"),
        ("coordinate_mlp(hidden_dim=-1)", "hidden_dim=-1"),
        ("fourier(sigma=-1.0)", "sigma=-1"),
        ("learned(std=-1.0)", "std=-1"),
        ("learned(prefix_embed=True)", "without CLS or registers"),
        ("relative(prefix_bias=True)", "without CLS or registers"),
        ("rope(prefix_mode='learned')", "without CLS or registers"),
    ],
)
def test_a_geometry_that_cannot_be_served_is_refused_when_the_model_is_built(spec, message):
    with pytest.raises(ValueError, match=message):
        ENCODINGS.build(spec, Geometry(dim=18, heads=3, depth=3, grid=GRID))


def test_the_sum_of_a_bias_and_a_rotation_is_their_sum():
    both = build("relative + rope + learned")
    q, k = qk()
    v = torch.randn_like(q)
    pos = Positions.from_grid(GRID)
    relative, rope, _ = both.parts
    rotated = rope.rotate(q, k, pos, 0)
    expected = attention(*rotated, v, relative.bias(q, k, pos, 0))
    assert torch.allclose(attention(*both.rotate(q, k, pos, 0), v, both.bias(q, k, pos, 0)), expected)
    with double_backward_attention():
        assert torch.allclose(attention(*rotated, v, relative.bias(q, k, pos, 0)), expected)

import pytest
import torch

from vitpos.encodings import ENCODINGS
from vitpos.models import MODELS
from vitpos.models.attention import SelfAttention, attention, double_backward_attention
from vitpos.models.vit import DropPath
from vitpos.models.windows import Windows
from vitpos.positions import Positions


@pytest.mark.parametrize("patch", [2, 4, 7, 14])
def test_the_minimal_model_takes_every_patch_size(patch):
    model = MODELS.build(f"minimal(patch={patch}, residual=True)", (1, 28, 28), 10, "learned")
    assert model(torch.randn(2, 1, 28, 28)).shape == (2, 10)
    assert model.geometry.grid == (28 // patch, 28 // patch)


def test_the_minimal_model_is_its_formula():
    model = MODELS.build("minimal", (1, 28, 28), 10, "learned")
    x = torch.randn(3, 1, 28, 28)
    patches = x.unfold(2, 4, 4).unfold(3, 4, 4).reshape(3, 49, 16)
    tokens = patches @ model.project.weight.mT + model.project.bias + model.encoding.table.flatten(0, 2)
    q, k, v = (tokens @ model.attention.qkv.weight.mT + model.attention.qkv.bias).chunk(3, -1)
    mixed = ((q @ k.mT) / 8).softmax(-1) @ v
    read = (mixed @ model.attention.proj.weight.mT + model.attention.proj.bias).mean(1)
    assert torch.allclose(model(x), model.head(read), atol=1e-5)
    assert not any(isinstance(module, torch.nn.LayerNorm) for module in model.modules())


def test_positions_cost_their_table_and_the_control_costs_as_much():
    size = {
        (model, encoding): sum(p.numel() for p in MODELS.build(model, (1, 28, 28), 10, encoding).parameters())
        for model, encoding in [("minimal", "none"), ("minimal", "learned"), ("minimal(hidden_dim=170)", "none")]
    }
    plain, learned, control = size.values()
    assert learned - plain == 49 * 64
    assert abs(control - learned) < 0.001 * learned


@pytest.mark.parametrize("needs_gradient", [False, True])
@pytest.mark.parametrize("batch", [1, 2, 4])
def test_attention_is_the_formula_whatever_kernel_is_taken(needs_gradient, batch):
    q, k, v = torch.randn(3, 4, 3, 5, 8, dtype=torch.float64, requires_grad=True).unbind()
    bias = torch.randn(batch, 3, 5, 5, dtype=torch.float64, requires_grad=needs_gradient)
    expected = ((q @ k.mT) / 8**0.5 + bias.repeat(4 // batch, 1, 1, 1)).softmax(-1) @ v
    assert torch.allclose(attention(q, k, v, bias), expected)
    with double_backward_attention():
        assert torch.allclose(attention(q, k, v, bias), expected)


def test_several_heads_agree_with_torch():
    ours, theirs = SelfAttention(12, 3), torch.nn.MultiheadAttention(12, 3, batch_first=True)
    theirs.load_state_dict(
        {
            "in_proj_weight": ours.qkv.weight,
            "in_proj_bias": ours.qkv.bias,
            "out_proj.weight": ours.proj.weight,
            "out_proj.bias": ours.proj.bias,
        }
    )
    from vitpos.encodings.base import Geometry

    x, pos = torch.randn(2, 6, 12), Positions.from_grid((2, 3))
    none = ENCODINGS.build("none", Geometry(12, 3, 1, (2, 3)))
    assert torch.allclose(ours(x, none, pos, 0), theirs(x, x, x)[0], atol=1e-5)


@pytest.mark.parametrize(
    ("pool", "registers", "prefix"), [("cls", 0, 1), ("cls", 4, 5), ("mean", 0, 0), ("mean", 2, 2)]
)
def test_prefix_tokens_are_cls_and_registers(pool, registers, prefix):
    spec = f"vit(patch=(2, 4), dim=16, depth=1, heads=2, pool='{pool}', registers={registers})"
    model = MODELS.build(spec, (3, 6, 8), 4, "learned")
    x, pos = model.forward_tokens(torch.randn(2, 3, 6, 8))
    assert x.shape == (2, prefix + 6, 16) and pos.grid == (3, 2)
    assert model.forward_features(torch.randn(2, 3, 6, 8)).shape == (2, 16)


def test_without_positions_cls_and_registers_stay():
    model = MODELS.build("vit(dim=16, depth=1, heads=2, registers=3)", (1, 8, 8), 4, "none")
    assert model.prefix_tokens.shape == (4, 16)


def test_drop_path_keeps_the_mean_and_rests_in_evaluation():
    drop, x = DropPath(0.25), torch.ones(20000, 1, 1)
    torch.manual_seed(0)
    dropped = drop(x)
    assert dropped.unique().tolist() == pytest.approx([0, 4 / 3])
    assert dropped.mean().item() == pytest.approx(1, abs=0.02)
    assert torch.equal(drop.eval()(x), x)


@pytest.mark.parametrize(
    ("spec", "encoding", "message"),
    [
        ("vit(dim=30, heads=4)", "none", "dim=30 is not divisible by heads=4; choose a multiple"),
        ("vit(heads=0)", "none", "heads=0; choose 1 or more"),
        ("vit(depth=-1)", "none", "depth=-1; choose 1 or more"),
        ("vit(registers=-1)", "none", "registers=-1.* 0 registers or more"),
        ("vit(drop_path=1.5)", "none", "drop_path from 0"),
        ("minimal(dim=0)", "none", "dim=0; choose 1 or more"),
        ("minimal(hidden_dim=0)", "none", "hidden_dim=0; choose 1 or more"),
        ("vit(patch=5)", "none", "cannot be cut into patches of 5x5"),
        ("cnn", "learned", "model 'cnn' has no tokens .* 'learned'; set it to 'none'"),
        ("resnet", "rope", "model 'resnet' has no tokens .* 'rope'; set it to 'none'"),
        ("resnet(depths=())", "none", r"depths=\(\)"),
        ("resnet(width=0)", "none", "width=0"),
        ("swin(depths=(2, 2))", "none", r"depths=\(2, 2\), heads=\(3, 6, 12, 24\)"),
        ("swin(window=(7, 0))", "none", r"window=\(7, 0\)"),
        ("swin(heads=(3, 6, 12, 25))", "none", "width 768 of stage 4 is not divisible by 25 heads; choose another dim"),
        ("swin(drop_path=1.0)", "none", "drop_path from 0"),
        ("swin(patch=5)", "none", "cannot be cut into patches of 5x5"),
        ("swin(window_encoding='rpoe')", "none", "no encoding 'rpoe'; did you mean 'rope'"),
        ("swin(window_encoding='learned + mjp')", "none", "of which 'mjp' acts on the whole grid; .* 'learned . mjp'"),
    ],
)
def test_wrong_options_give_the_value_and_the_remedy(spec, encoding, message):
    with pytest.raises(ValueError, match=message):
        MODELS.build(spec, (1, 28, 28), 10, encoding)


def test_positions_that_do_not_fit_the_patches_are_refused():
    model = MODELS.build("minimal", (1, 28, 28), 10, "none")
    with pytest.raises(ValueError, match="4 positions for 1 images do not fit 2 images of 49 patches"):
        model(torch.randn(2, 1, 28, 28), Positions.from_grid((2, 2)))


@pytest.mark.parametrize("encoding", ["learned(interpolation='bilinear')", "learned"])
def test_a_resized_model_reads_its_new_table_where_the_old_one_was_fitted(encoding):
    model = MODELS.build("vit(patch=(2, 4), dim=16, depth=1, heads=2)", (1, 6, 20), 4, encoding)
    mode = "bilinear" if "bilinear" in encoding else "bicubic"
    images = torch.randn(2, 1, 10, 12)  # a grid of 5×3 instead of 3×5
    resized = model.resized((5, 3), mode=mode)
    assert resized.geometry.grid == (5, 3) and model.geometry.grid == (3, 5)
    assert torch.allclose(resized(images), model(images), atol=1e-5)


@pytest.mark.parametrize("encoding", ["learned", "relative", "liere", "fourier"])
def test_one_seed_gives_all_encodings_the_same_weights_around_them(encoding):
    weights = []
    for spec in ("none", encoding):
        torch.manual_seed(3)
        model = MODELS.build("vit(dim=16, depth=2, heads=2)", (1, 8, 8), 4, spec)
        weights.append({k: v for k, v in model.state_dict().items() if not k.startswith("encoding")})
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


@pytest.mark.parametrize(
    ("shape", "message"), [((2, 3, 8, 8), "(2, 3, 8, 8)"), ((1, 8, 8), "(1, 8, 8)"), ((2, 1, 7, 8), "cannot be cut")]
)
def test_images_that_do_not_fit_are_refused_in_words(shape, message):
    with pytest.raises(ValueError) as error:
        MODELS.build("vit(dim=16, depth=1, heads=2)", (1, 8, 8), 4)(torch.randn(shape))
    assert message in str(error.value)


SWIN = "swin(patch=2, dim=16, depths=(2, 2), heads=(2, 4), window=(2, 4), window_encoding={!r}, drop_path=0.0)"
WIDE = (2, 8, 20)  # a grid of 4×10, then of 2×5: the second side is not made of whole windows


def swin(encoding="none", windows="relative"):
    """Returns a small Swin with large random weights, so that the effect of an encoding is visible."""
    torch.manual_seed(0)
    model = MODELS.build(SWIN.format(windows), WIDE, 5, encoding).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.3)
    return model


@pytest.mark.parametrize("shifted", [False, True])
@pytest.mark.parametrize(("grid", "window"), [((4, 8), (2, 4)), ((4, 9), (2, 3)), ((5, 7), (2, 3)), ((3, 8), (4, 4))])
def test_windows_are_cut_and_joined_and_only_neighbors_see_each_other(grid, window, shifted):
    windows = Windows.of(grid, window, shifted=shifted)
    cells = torch.arange(1.0, 1 + grid[0] * grid[1]).view(1, *grid, 1).repeat(2, 1, 1, 3)  # 0 is left for padding
    cut = windows.partition(cells)
    assert torch.equal(windows.reverse(cut), cells)
    inside = cut[: len(cut) // 2, :, 0]  # (W, n)
    assert inside.count_nonzero() == grid[0] * grid[1]
    rows, columns = (inside - 1) // grid[1], (inside - 1) % grid[1]
    near = [(x[:, :, None] - x[:, None]).abs() < side for x, side in zip((rows, columns), windows.size, strict=True)]
    real = inside > 0
    mask = windows.mask(cut)
    seen = torch.ones_like(near[0]) if mask is None else mask[:, 0] == 0
    both = real[:, :, None] & real[:, None]
    assert torch.equal((seen & both), near[0] & near[1] & both)
    assert not (seen & (real[:, :, None] != real[:, None])).any()
    assert seen.diagonal(dim1=1, dim2=2).all()


def test_windows_at_the_border_are_smaller_windows():
    stage = swin().stages[0]
    del stage.blocks[1]  # which shifts
    x = torch.randn(3, 3, 6, 16)
    whole = stage(x)  # in windows of 2×4
    for rows in (slice(0, 2), slice(2, 3)):
        for columns in (slice(0, 4), slice(4, 6)):
            assert torch.allclose(whole[:, rows, columns], stage(x[:, rows, columns]), atol=1e-5)


@pytest.mark.parametrize("windows", [name for name in ENCODINGS if name != "mjp"])
def test_every_encoding_works_inside_windows(windows):
    model, images = swin(windows=windows).double(), torch.randn(3, *WIDE, dtype=torch.float64)
    logits = model(images)
    assert logits.shape == (3, 5)
    assert torch.allclose(logits, torch.cat([model(image[None]) for image in images]), atol=1e-9)
    logits.square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all(), name
    assert windows == "none" or not torch.allclose(logits, swin(windows="none").double()(images))


def test_inside_windows_too_every_pass_of_training_draws_anew():
    model, images = swin(windows="rope_dino").train(), torch.randn(2, *WIDE)
    assert not torch.allclose(model(images), model(images))
    assert torch.equal(model.eval()(images), model(images))


@pytest.mark.parametrize(
    ("encoding", "term"),
    [
        *((name, name) for name in ("relative", "rope", "cpe", "alibi", "sape2", "cpb", "learned(per_layer=True)")),
        ("learned + rope(base=10.0) + mjp", "rope(base=10.0)"),
    ],
)
def test_encodings_that_only_windows_can_use_are_refused_on_the_patch_grid(encoding, term):
    with pytest.raises(ValueError) as error:
        swin(encoding)
    assert f"swin(window_encoding={term!r})" in str(error.value)


@pytest.mark.parametrize(
    "encoding", ["learned", "sinusoidal", "factorized", "fourier", "coordinate_mlp", "learned + mjp"]
)
def test_encodings_that_add_to_tokens_use_the_patch_grid(encoding):
    model, images = swin(encoding), torch.randn(2, *WIDE)
    assert model.geometry.grid == (4, 10) and model.forward_tokens(images)[0].shape == (2, 10, 32)
    assert torch.equal(model.head(model.forward_features(images)), model(images))
    assert not torch.allclose(model(images), swin()(images), atol=1e-3)


def test_the_masked_jigsaw_puzzle_rests_in_evaluation_and_penalizes_in_training():
    puzzle, plain, images = swin("learned + mjp(mask_ratio=0.5)"), swin("learned"), torch.randn(2, *WIDE)
    state = {name.replace("encoding.encodings.0.", "encoding."): tensor for name, tensor in puzzle.state_dict().items()}
    plain.load_state_dict({name: state[name] for name in plain.state_dict()})
    assert torch.equal(puzzle(images), plain(images))
    logits, penalty = puzzle.train().forward_with_penalty(images)
    assert penalty > 0 and not torch.allclose(logits, plain(images))
    (logits.square().sum() + penalty).backward()
    assert all(parameter.grad.abs().max() > 0 for parameter in puzzle.parameters())


def test_hidden_and_permuted_positions_change_swin_through_its_table_alone():
    model, images = swin("learned"), torch.randn(2, *WIDE)
    pos, hidden, order = Positions.from_grid((4, 10)), torch.rand(1, 40) < 0.3, torch.randperm(40)
    bare = swin()
    assert torch.equal(bare(images, pos.hide(hidden)), bare(images))
    assert torch.equal(bare(images, pos.permute(order)), bare(images))
    masked, moved = model(images, pos.hide(hidden)), model(images, pos.permute(order))
    table = model.encoding.table.detach().clone().flatten(1, 2)
    for change, expected in ((table * ~hidden[..., None], masked), (table[:, order], moved)):
        with torch.no_grad():
            model.encoding.table.copy_(change.unflatten(1, (4, 10)))
        assert torch.allclose(model(images), expected, atol=1e-5)


def test_windows_are_never_cut_from_another_grid_of_the_same_size():
    with pytest.raises(ValueError, match="on a 10x4 grid do not fit images of 4x10 patches"):
        swin()(torch.randn(1, *WIDE), Positions.from_grid((10, 4)))


def test_a_gradient_through_windows_can_be_differentiated_again():
    model, images = swin("learned").train(), torch.randn(1, *WIDE, requires_grad=True)
    with double_backward_attention():
        gradients = torch.autograd.grad(model(images).square().sum(), list(model.parameters()), create_graph=True)
        sum(gradient.square().sum() for gradient in gradients).backward()
    assert images.grad.isfinite().all() and images.grad.any()


@pytest.mark.parametrize("grid", [(8, 20), (3, 7), (1, 5), (2, 2)])
def test_swin_serves_other_grids_and_is_resized_to_them(grid):
    model, images = swin("learned(interpolation='bilinear')"), torch.randn(2, 2, 2 * grid[0], 2 * grid[1])
    resized = model.resized(grid, mode="bilinear")
    assert resized.geometry.grid == grid and model.geometry.grid == (4, 10)
    assert torch.allclose(resized(images), model(images), atol=1e-4)


def test_one_seed_gives_all_windows_the_same_weights_around_them():
    weights = []
    for windows in ("none", "cpb"):
        torch.manual_seed(3)
        state = MODELS.build(SWIN.format(windows), WIDE, 5, "none").state_dict()
        weights.append({name: tensor for name, tensor in state.items() if "encoding" not in name})
    assert weights[0].keys() == weights[1].keys()
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


@pytest.mark.filterwarnings("ignore")  # torch's own, while it traces
def test_swin_exports():
    model, images = swin("learned"), torch.randn(2, *WIDE)
    exported = torch.export.export(model, (images,)).module()
    assert torch.allclose(exported(images), model(images), atol=1e-5)


@pytest.mark.parametrize(("stem", "side"), [("large", 7), ("small", 28)])
def test_a_small_stem_keeps_the_size_of_small_images(stem, side):
    model = MODELS.build(f"resnet(depths=(1, 1), width=4, stem={stem!r})", (1, 28, 28), 5)
    images = torch.randn(2, 1, 28, 28)
    assert model.pool(model.conv(images)).shape[2:] == (side, side)
    assert torch.equal(model.eval().head(model.forward_features(images)), model(images))
    assert model.forward_features(images).shape == (2, 32)


def test_a_block_of_a_new_resnet_adds_nothing():
    model = MODELS.build("resnet(depths=(2,), width=4)", (3, 32, 32), 5).train()
    x = torch.rand(2, 16, 8, 8)
    assert torch.equal(model.stages[0][1](x), x)

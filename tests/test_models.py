import pytest
import torch

from vitpos.models import MODELS
from vitpos.models.attend import SelfAttention, attend, twice_differentiable
from vitpos.models.vit import DropPath
from vitpos.positions import Positions


@pytest.mark.parametrize("patch", [2, 4, 7, 14])
def test_the_minimal_model_takes_every_patch_size(patch):
    model = MODELS.build(f"attention(patch={patch}, residual=True)", (1, 28, 28), 10, "learned")
    assert model(torch.randn(2, 1, 28, 28)).shape == (2, 10)
    assert model.geometry.grid == (28 // patch, 28 // patch)


def test_the_minimal_model_is_what_the_document_describes():
    model = MODELS.build("attention", (1, 28, 28), 10, "learned")
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
        for model, encoding in [("attention", "none"), ("attention", "learned"), ("attention(hidden=170)", "none")]
    }
    plain, learned, control = size.values()
    assert learned - plain == 49 * 64
    assert abs(control - learned) < 0.001 * learned


@pytest.mark.parametrize("needs_gradient", [False, True])
@pytest.mark.parametrize("batch", [1, 2])
def test_attention_is_the_formula_whatever_kernel_is_taken(needs_gradient, batch):
    q, k, v = torch.randn(3, 2, 3, 5, 8, dtype=torch.float64, requires_grad=True).unbind()
    bias = torch.randn(batch, 3, 5, 5, dtype=torch.float64, requires_grad=needs_gradient)
    expected = ((q @ k.mT) / 8**0.5 + bias).softmax(-1) @ v
    assert torch.allclose(attend(q, k, v, bias), expected)
    with twice_differentiable():
        assert torch.allclose(attend(q, k, v, bias), expected)


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
    from vitpos.encodings import ENCODINGS
    from vitpos.encodings.base import Geometry

    x, pos = torch.randn(2, 6, 12), Positions.of((2, 3))
    none = ENCODINGS.build("none", Geometry(12, 3, 1, (2, 3)))
    assert torch.allclose(ours(x, none, pos, 0), theirs(x, x, x)[0], atol=1e-5)


@pytest.mark.parametrize(
    ("pool", "registers", "prefix"), [("cls", 0, 1), ("cls", 4, 5), ("mean", 0, 0), ("mean", 2, 2)]
)
def test_prefix_tokens_are_cls_and_registers(pool, registers, prefix):
    spec = f"vit(patch=(2, 4), dim=16, depth=1, heads=2, pool='{pool}', registers={registers})"
    model = MODELS.build(spec, (3, 6, 8), 4, "learned")
    x, pos = model.tokens(torch.randn(2, 3, 6, 8))
    assert x.shape == (2, prefix + 6, 16) and pos.grid == (3, 2)
    assert model.features(torch.randn(2, 3, 6, 8)).shape == (2, 16)


def test_without_positions_cls_and_registers_stay():
    model = MODELS.build("vit(dim=16, depth=1, heads=2, registers=3)", (1, 8, 8), 4, "none")
    assert model.prefix.shape == (4, 16)


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
        ("vit(dim=30, heads=4)", "none", "30 cannot be shared by 4 heads"),
        ("vit(heads=0)", "none", "heads=0 cannot be"),
        ("vit(depth=-1)", "none", "depth=-1 cannot be"),
        ("vit(registers=-1)", "none", "registers from 0"),
        ("vit(drop_path=1.5)", "none", "drop_path from 0"),
        ("attention(dim=0)", "none", "dim=0 cannot be"),
        ("attention(hidden=0)", "none", "hidden=0"),
        ("vit(patch=5)", "none", "cannot be cut into patches of 5x5"),
        ("cnn", "learned", "has no tokens to give 'learned' to"),
    ],
)
def test_what_cannot_be_built_says_why(spec, encoding, message):
    with pytest.raises(ValueError, match=message):
        MODELS.build(spec, (1, 28, 28), 10, encoding)


def test_positions_that_do_not_fit_the_patches_are_refused():
    model = MODELS.build("attention", (1, 28, 28), 10, "none")
    with pytest.raises(ValueError, match="4 places for 1 images do not fit 2 images of 49 patches"):
        model(torch.randn(2, 1, 28, 28), Positions.of((2, 2)))


@pytest.mark.parametrize("encoding", ["learned(between='bilinear')", "learned"])
def test_a_resized_model_reads_its_new_table_where_the_old_one_was_fitted(encoding):
    model = MODELS.build("vit(patch=(2, 4), dim=16, depth=1, heads=2)", (1, 6, 20), 4, encoding)
    how = "bilinear" if "bilinear" in encoding else "bicubic"
    images = torch.randn(2, 1, 10, 12)  # a grid of 5×3 instead of 3×5
    resized = model.resized((5, 3), how=how)
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

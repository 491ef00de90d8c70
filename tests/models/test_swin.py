"""The Swin: encodings inside windows and on the patch grid, other grids, gradients and export."""

import pytest
import torch

from vitpos.encodings import ENCODINGS
from vitpos.models import MODELS
from vitpos.models.attention import double_backward_attention
from vitpos.positions import Positions

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
@pytest.mark.slow
def test_swin_exports():
    model, images = swin("learned"), torch.randn(2, *WIDE)
    exported = torch.export.export(model, (images,)).module()
    assert torch.allclose(exported(images), model(images), atol=1e-5)

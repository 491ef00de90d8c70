"""Every registered encoding keeps the contract in a model."""

import pytest
import torch
from safetensors.torch import load, save

from tests.encodings.contract import (
    BESIDE,
    GRID,
    IMAGE,
    MODEL,
    PATCH,
    SINGLE,
    N,
    every,
    every_options_slow,
    forward,
    hiding,
    model_of,
    random_images,
    same,
    single,
    tokens,
    traits_of,
)
from vitpos.encodings import ENCODINGS
from vitpos.encodings.base import ATTENTION_HOOKS, Geometry, PositionEncoding, pad_prefix
from vitpos.models import MODELS
from vitpos.models.attention import double_backward_attention
from vitpos.patches import patchify
from vitpos.positions import Positions
from vitpos.testing import check_encoding


@every_options_slow
def test_keeps_the_contract(spec):
    """MJP alone has no positions of others to hide; a slot index is known even where a position is hidden."""
    skip = ["gradients"] if spec == "mjp" else ["hidden"] if "index=True" in spec else []
    check_encoding(spec, skip=skip)


def test_mjp_uses_its_parameters_beside_another_encoding():
    check_encoding("learned + mjp(mask_ratio=0.5)")


@hiding
def test_swapping_hidden_patches_changes_nothing(spec):
    model, x = model_of(spec), tokens()
    hidden = torch.zeros(1, N, dtype=torch.bool)
    hidden[0, [1, 6, 10]] = True
    order = torch.arange(N)
    order[[1, 6, 10]] = torch.tensor([6, 10, 1])
    pos = Positions.from_grid(GRID).hide(hidden)
    assert same(forward(model, x, pos), forward(model, x[:, order], pos))
    if "permutation_invariant" not in traits_of(spec) and "(gates=False" not in spec:
        visible = Positions.from_grid(GRID)
        assert not same(forward(model, x, visible), forward(model, x[:, order], visible))


@every
def test_resized_serves_its_new_grid_and_leaves_the_old_one_alone(spec):
    model, grid = model_of(spec), (6, 5)
    before = model(random_images())
    other = model.resized(grid)
    assert other.geometry.grid == grid and other(random_images(grid=grid)).isfinite().all()
    assert same(model(random_images()), before)
    if "resizable" not in traits_of(spec) and "index=True" not in spec:  # no table: fitted, not gone beyond the span
        assert same(other(random_images(grid=grid)), model(random_images(grid=grid)))


@pytest.mark.parametrize("spec", [spec for spec in SINGLE if "resizable" in traits_of(spec)])
@pytest.mark.parametrize("grid", [(6, 5), (2, 8)])
def test_a_resized_model_is_one_built_for_the_new_grid_with_the_new_table(spec, grid):
    resized = model_of(spec).resized(grid)
    image = (IMAGE[0], grid[0] * PATCH[0], grid[1] * PATCH[1])
    built = MODELS.build(MODEL, image, 5, spec).double().eval()
    built.load_state_dict(resized.state_dict())
    assert torch.allclose(resized(random_images(grid=grid)), built(random_images(grid=grid)), atol=1e-5)


@every
def test_prefix_tokens_are_left_alone(spec):
    model = model_of(spec)
    seen = []
    model.blocks[0].register_forward_hook(lambda module, inputs, output: seen.append(inputs[0]))
    model(random_images())
    added = model.encoding.prefix_vectors()
    assert torch.equal(
        seen[0][:, :2], (model.prefix_tokens if added is None else model.prefix_tokens + added).expand(3, -1, -1)
    )
    assert ("prefix_embed=" in spec) == (added is not None)
    q, k = torch.randn(2, 3, 2, N + 2, 16, dtype=torch.float64)
    bias = model.encoding.bias(q, k, Positions.from_grid(GRID), 0)
    acts = bias is not None and bool(
        pad_prefix(bias, N + 2)[..., :2, :].any() or pad_prefix(bias, N + 2)[..., :2].any()
    )
    assert acts == ("biases_prefix" in traits_of(spec) or "prefix_bias=True" in spec)
    always = any(ENCODINGS.load(term.name).unrotated_prefix for term in ENCODINGS.parse(spec))
    assert model.encoding.unrotated_prefix == (always or "unrotated" in spec)


@every
def test_a_hook_at_which_it_does_not_act_leaves_everything_as_it_is(spec):
    encoding, x, pos = model_of(spec).train().encoding, tokens(), Positions.from_grid(GRID)
    q, k = torch.randn(2, 3, 2, N, 16, dtype=torch.float64)
    unchanged = {
        "augment": encoding.augment(x, pos)[0] is x,
        "vectors": all(encoding.vectors(pos, layer, x.dtype) is None for layer in (0, 1)),
        "update": all(encoding.update(x, pos, layer) is x for layer in (0, 1)),
        "bias": encoding.bias(q, k, pos, 0) is None,
        "rotate": encoding.rotate(q, k, pos, 0)[0] is q,
    }
    assert all(same or hook in encoding.hooks for hook, same in unchanged.items())
    assert any(hook in encoding.hooks for hook in (*unchanged, *ATTENTION_HOOKS)) == (spec != "none")


@every
def test_a_gradient_can_be_differentiated_again(spec):
    model, images = model_of(BESIDE.get(spec, spec)).train(), random_images().requires_grad_()
    with double_backward_attention():
        logits, penalty = model.forward_with_penalty(images)
        loss = logits.square().sum() + penalty
        gradients = torch.autograd.grad(loss, list(model.parameters()), create_graph=True)
        sum(g.square().sum() for g in gradients).backward()
    assert images.grad.isfinite().all() and images.grad.any()


@every_options_slow
def test_a_state_dict_goes_to_disk_and_back(spec):
    model, other = model_of(spec), MODELS.build(MODEL, IMAGE, 5, spec).double().eval()
    other.load_state_dict(load(save(model.state_dict())))
    assert torch.equal(model(random_images()), other(random_images()))


@every
@pytest.mark.parametrize(  # finite logits on the other grids are part of check_encoding
    "grid", [(6, 8), *(pytest.param(grid, marks=pytest.mark.slow) for grid in [(2, 3), (1, 5), (5, 1)])]
)
def test_another_resolution_fits_into_the_span_or_goes_beyond(spec, grid):
    model, images = model_of(spec), random_images(grid=grid)
    fitted = model(images)
    assert fitted.isfinite().all()
    assert same(fitted, model(images, Positions.from_grid(grid, train_grid=GRID)))
    beyond = model(images, Positions.from_grid(grid))
    assert beyond.isfinite().all()
    if grid == (6, 8):  # on a single row some heads may attend to no other token at all
        by_cell = " + " not in spec and traits_of(spec) & {"permutation_invariant", "index_only"}
        assert same(fitted, beyond) == bool(by_cell or "fractional" in spec)


@single
def test_composition_works_in_either_order(spec):
    first, second = model_of(f"{spec} + learned"), model_of(f"learned + {spec}")
    second.encoding.parts[1].load_state_dict(first.encoding.parts[0].state_dict())
    second.encoding.parts[0].load_state_dict(first.encoding.parts[1].state_dict())
    state = {k: v for k, v in first.state_dict().items() if not k.startswith("encoding")}
    second.load_state_dict(state, strict=False)
    assert same(first(random_images()), second(random_images()))


def test_positions_constructed_directly_hide_tokens_too():
    pos = Positions.from_grid(GRID)
    by_hand = Positions(GRID, pos.coords, pos.index, torch.zeros_like(pos.known))
    for spec in ("learned", "rope", "relative"):
        model, x = model_of(spec), tokens()
        hidden = forward(model, x, pos.hide(torch.ones(1, N, dtype=torch.bool)))
        assert same(forward(model, x, by_hand), hidden)


class ReverseAndHide(PositionEncoding):
    """Reverses the tokens, hides some and adds a penalty for each hidden position."""

    def augment(self, x, pos):
        order = torch.arange(x.shape[1]).flip(0)
        return x[:, order], pos.permute(order).hide(torch.arange(x.shape[1])[None] < 3)

    def penalty(self, pos, others=()):
        return (~pos.known).sum() * 0.5


def test_the_model_applies_augment_and_penalty_alone_and_in_a_sum():
    model, images = model_of("learned"), random_images()
    learned = model.encoding
    order = torch.arange(N).flip(0)
    x = model.project(patchify(images, model.patch))
    pos = Positions.from_grid(GRID).permute(order).hide(torch.arange(N)[None] < 3)
    expected = forward(model, x[:, order], pos)
    model.encoding = ReverseAndHide() + learned
    logits, penalty = model.forward_with_penalty(images)
    assert same(logits, expected) and penalty == 1.5


def test_a_table_first_used_in_inference_can_be_trained_with_later():
    model = model_of("sinusoidal + learned", torch.float32)
    images = random_images(dtype=torch.float32, grid=(6, 8))
    with torch.inference_mode():
        model(images)
    model(images).sum().backward()


def test_a_geometry_that_an_encoding_cannot_serve_is_refused_at_once():
    with pytest.raises(ValueError, match="width divisible by 4, not 30"):
        ENCODINGS.build("sinusoidal", Geometry(dim=30, heads=2, depth=1, grid=GRID))

"""Every encoding of the catalogue through every promise; each trait is tested both ways."""

import pytest
import torch
from safetensors.torch import load, save

from vitpos.encodings import ENCODINGS
from vitpos.encodings.base import Geometry, PositionEncoding, widen
from vitpos.models import MODELS
from vitpos.models.attend import twice_differentiable
from vitpos.models.vit import ViT
from vitpos.patches import patchify
from vitpos.positions import Positions

GRID, OTHER, PATCH = (3, 4), (2, 6), (2, 3)  # same number of cells; nothing is square
IMAGE = (2, GRID[0] * PATCH[0], GRID[1] * PATCH[1])
MODEL = f"vit(patch={PATCH}, dim=32, depth=2, heads=2, registers=1)"
PATCHES_ONLY = MODEL.replace("registers=1", "pool='mean'")
N = GRID[0] * GRID[1]
SINGLE = list(ENCODINGS)
SPECS = [*SINGLE, "learned + sinusoidal", "nearby + learned", "rope + liere + cope", "rope(prefix='content') + cpe"]
SPECS += ["cpb + rope", "rope(prefix='content') + cpb"]
OPTIONS = [
    "learned(between='bilinear')",
    "learned(every_layer=True)",
    "learned(prefix=True)",
    "sinusoidal(layout='moco')",
    "factorized(fractional=True)",
    "fourier(learnable=False)",
    "relative(cls=True)",
    "irpe(mode='bias')",
    "cpb(cosine=False)",
    "cpe(blocks=(0, 1), padding='circular')",
    "lookhere(view=45)",
    "lookhere(view=180)",
    "cope(causal=True)",
    "sape2(dot='q', scaled_gates=False, divide=False, steps=4, sign=-1)",
    "sape2(axes=False)",
    "sape2(gated=False)",
    "rope(prefix='place')",
    "rope(prefix='centre', ntk=2.0)",
    "rope_mixed(prefix='content')",
    "rope_dino(shift=0.5, jitter=1.5)",
    "liere(block=2)",
    "learned + mjp(ratio=0.5, index=True, dal='pca', per='image', derange=True)",
    "rope + mjp(ratio=0.5, dal=None)",
    "relative + sape2 + mjp(ratio=0.5, dal=None)",
]
BESIDE = {"mjp": "learned + mjp(ratio=0.5)"}  # what hides the places of others does nothing alone

every = pytest.mark.parametrize("spec", SPECS + OPTIONS)
hiding = pytest.mark.parametrize(  # a slot index tells the slot even of a patch whose place is hidden
    "spec", [spec for spec in SPECS + OPTIONS if "index=True" not in spec]
)
single = pytest.mark.parametrize("spec", SINGLE)


def traits_of(spec):
    return {trait for term in ENCODINGS.parse(spec) for trait in ENCODINGS.describe(term.name).traits}


def model_of(spec: str, dtype=torch.float64, model=MODEL) -> ViT:
    """A small ViT with large random weights, so that whatever an encoding does can be seen."""
    torch.manual_seed(0)
    model = MODELS.build(model, IMAGE, 5, spec).to(dtype).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            size = min(0.5, 1.5 * parameter.shape[1] ** -0.5) if parameter.ndim == 2 else 0.5
            parameter.copy_(torch.randn_like(parameter) * size)
    return model


def pictures(count=3, grid=GRID, dtype=torch.float64):
    generator = torch.Generator().manual_seed(1)
    size = grid[0] * PATCH[0], grid[1] * PATCH[1]
    return torch.randn(count, 2, *size, generator=generator, dtype=torch.float64).to(dtype)


def tokens(count=3, n=N):
    return torch.randn(count, n, 32, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


def forward(model, x, pos):
    """The model from its patch tokens on."""
    x, pos = model.encoding.arrange(x, pos)
    return model.head(model.read(model.encode(model.encoding.embed(x, pos), pos)))


def same(a, b):
    return torch.allclose(a, b, rtol=1e-9, atol=1e-9)


def shuffled(n=N):
    return torch.randperm(n, generator=torch.Generator().manual_seed(3))


def pair_logits(model, x, pos, layer=1):
    """(B, H, N, N): the logits that attention would see, from tokens x that are their own q and k."""
    x = model.encoding.refresh(model.encoding.embed(x, pos), pos, layer)
    q = x.unflatten(2, (2, 16)).transpose(1, 2)
    k = q.flip(-1)
    q, k = model.encoding.prepare(q, k, layer)
    bias = model.encoding.bias(q, k, pos, layer)
    turned = model.encoding.rotate(q, k, pos, layer)
    return turned[0] @ turned[1].mT / 4 + (0 if bias is None else bias)


def holds(promise: bool, spec: str, trait: str) -> None:
    """A declared trait is true and an undeclared one is not."""
    declared = trait in ENCODINGS.describe(spec).traits
    assert promise == declared, f"{spec} {'declares' if declared else 'does not declare'} {trait!r}"


@every
def test_gives_one_row_of_logits_per_image_on_a_grid_that_is_not_square(spec):
    assert model_of(spec)(pictures()).shape == (3, 5)


@hiding
def test_everything_hidden_is_blind_to_shuffling(spec):
    model, x, order = model_of(spec), tokens(), shuffled()
    pos = Positions.of(GRID).hide(torch.ones(1, N, dtype=torch.bool))
    assert same(forward(model, x, pos), forward(model, x[:, order], pos))


@hiding
def test_swapping_hidden_patches_changes_nothing(spec):
    model, x = model_of(spec), tokens()
    hidden = torch.zeros(1, N, dtype=torch.bool)
    hidden[0, [1, 6, 10]] = True
    order = torch.arange(N)
    order[[1, 6, 10]] = torch.tensor([6, 10, 1])
    pos = Positions.of(GRID).hide(hidden)
    assert same(forward(model, x, pos), forward(model, x[:, order], pos))
    if "permutation-blind" not in traits_of(spec) and "gated=False" not in spec:
        visible = Positions.of(GRID)
        assert not same(forward(model, x, visible), forward(model, x[:, order], visible))


@every
def test_between_a_hidden_and_a_known_patch_the_place_of_the_known_one_does_not_matter(spec):
    model = model_of(spec)
    hidden = torch.zeros(1, N, dtype=torch.bool)
    hidden[0, 4] = True
    here = Positions.of(GRID)
    there = here.permute(shuffled()[None])
    logits = []
    for pos in (here.hide(hidden), there.hide(hidden)):
        q, k = torch.randn(2, 3, 2, N + 2, 16, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
        bias = model.encoding.bias(q, k, pos, 0)
        q2, k2 = model.encoding.rotate(q[:, :, 2:], k[:, :, 2:], pos, 0)
        pair = q2 @ k2.mT / 4
        logits.append(pair if bias is None else pair + widen(bias, N + 2)[..., 2:, 2:])
    assert same(logits[0][:, :, 4], logits[1][:, :, 4])
    assert same(logits[0][..., 4], logits[1][..., 4])


@every
def test_tokens_and_positions_permuted_together_change_nothing(spec):
    model, images, order = model_of(spec), pictures(), shuffled()
    x = tokens()
    assert same(forward(model, x, Positions.of(GRID)), forward(model, x[:, order], Positions.of(GRID).permute(order)))
    orders = torch.stack([order, order.flip(0), torch.arange(N)])  # an order for each image
    moved = x.gather(1, orders[..., None].expand_as(x))
    assert same(forward(model, x, Positions.of(GRID)), forward(model, moved, Positions.of(GRID).permute(orders)))
    assert model(images).shape == (3, 5)


@single
def test_permutation_blindness_is_as_declared(spec):
    model, x, order = model_of(spec), tokens(), shuffled()
    pos = Positions.of(GRID)
    holds(same(forward(model, x, pos), forward(model, x[:, order], pos)), spec, "permutation-blind")


@single
def test_grid_blindness_is_as_declared(spec):
    model, x = model_of(spec), tokens()
    holds(same(forward(model, x, Positions.of(GRID)), forward(model, x, Positions.of(OTHER))), spec, "grid-blind")


@single
def test_relativity_is_as_declared(spec):
    """Two crops of one canvas, compared on the patches that both have, away from their borders.

    Among patches: a CLS token that is not turned acts as a token at the origin, which a shift does move.
    """
    model, canvas = model_of(spec, model=PATCHES_ONLY), tokens(n=GRID[0] * 9).unflatten(1, (GRID[0], 9))
    logits = []
    for start, shared in ((0, slice(3, 6)), (3, slice(0, 3))):
        crop = canvas[:, :, start : start + 6].flatten(1, 2)
        pairs = pair_logits(model, crop, Positions.of((GRID[0], 6))).unflatten(3, (-1, 6)).unflatten(2, (-1, 6))
        logits.append(pairs[:, :, :, shared, :, shared])
    holds(same(*logits), spec, "relative")


@single
def test_being_trained_and_stored_is_as_declared(spec):
    encoding = model_of(spec).encoding
    holds(bool(list(encoding.parameters())), spec, "trained")
    resized = encoding.resized(OTHER)
    shapes = {name: tensor.shape for name, tensor in encoding.state_dict().items()}
    holds({name: tensor.shape for name, tensor in resized.state_dict().items()} != shapes, spec, "stored")


@every
def test_resized_serves_its_new_grid_and_leaves_the_old_one_alone(spec):
    model, grid = model_of(spec), (6, 5)
    before = model(pictures())
    other = model.resized(grid)
    assert other.geometry.grid == grid and other(pictures(grid=grid)).isfinite().all()
    assert same(model(pictures()), before)
    if "stored" not in traits_of(spec) and "index=True" not in spec:  # no table: fitted, not gone beyond the span
        assert same(other(pictures(grid=grid)), model(pictures(grid=grid)))


@pytest.mark.parametrize("spec", [spec for spec in SINGLE if "stored" in traits_of(spec)])
@pytest.mark.parametrize("grid", [(6, 5), (2, 8)])
def test_a_resized_model_is_one_built_for_the_new_grid_with_the_new_table(spec, grid):
    resized = model_of(spec).resized(grid)
    image = (IMAGE[0], grid[0] * PATCH[0], grid[1] * PATCH[1])
    built = MODELS.build(MODEL, image, 5, spec).double().eval()
    built.load_state_dict(resized.state_dict())
    assert torch.allclose(resized(pictures(grid=grid)), built(pictures(grid=grid)), atol=1e-5)


@every
def test_prefix_tokens_are_left_alone(spec):
    model = model_of(spec)
    seen = []
    model.blocks[0].register_forward_hook(lambda module, inputs, output: seen.append(inputs[0]))
    model(pictures())
    assert torch.equal(seen[0][:, :2], model.encoding.lead(model.prefix).expand(3, -1, -1))
    assert "prefix=True" in spec or model.encoding.lead(model.prefix) is model.prefix
    q, k = torch.randn(2, 3, 2, N + 2, 16, dtype=torch.float64)
    bias = model.encoding.bias(q, k, Positions.of(GRID), 0)
    speaks = bias is not None and bool(widen(bias, N + 2)[..., :2, :].any() or widen(bias, N + 2)[..., :2].any())
    assert speaks == ("prefix" in traits_of(spec) or "content" in spec or "cls=True" in spec)


@every
def test_a_hook_at_which_it_does_not_act_leaves_everything_as_it_is(spec):
    encoding, x, pos = model_of(spec).train().encoding, tokens(), Positions.of(GRID)
    q, k = torch.randn(2, 3, 2, N, 16, dtype=torch.float64)
    left = {
        "arrange": encoding.arrange(x, pos)[0] is x,
        "embed": encoding.embed(x, pos) is x,
        "refresh": all(encoding.refresh(x, pos, layer) is x for layer in (0, 1)),
        "prepare": encoding.prepare(q, k, 0)[0] is q,
        "bias": encoding.bias(q, k, pos, 0) is None,
        "score": encoding.score(q, k, pos, 0) is None,
        "rotate": encoding.rotate(q, k, pos, 0)[0] is q,
    }
    assert all(same or encoding.acts(hook) for hook, same in left.items())
    assert any(encoding.acts(hook) for hook in left) == (spec != "none")


@every
def test_an_image_is_answered_alike_alone_and_in_a_batch(spec):
    model, images = model_of(spec), pictures()
    assert same(model(images), torch.cat([model(image[None]) for image in images]))


@every
def test_gradients_reach_every_parameter(spec):
    """The mean over patches: a CLS token reads nothing of what the last layer says of pairs of patches."""
    model = model_of(BESIDE.get(spec, spec), model=MODEL.replace("registers", "pool='mean', registers")).train()
    logits, penalty = model.step(pictures())
    (logits.square().sum() + penalty).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().max() > 1e-8, name


@every
def test_a_gradient_can_be_differentiated_again(spec):
    model, images = model_of(BESIDE.get(spec, spec)).train(), pictures().requires_grad_()
    with twice_differentiable():
        logits, penalty = model.step(images)
        loss = logits.square().sum() + penalty
        gradients = torch.autograd.grad(loss, list(model.parameters()), create_graph=True)
        sum(g.square().sum() for g in gradients).backward()
    assert images.grad.isfinite().all() and images.grad.any()


@every
def test_a_state_dict_goes_to_disk_and_back(spec):
    model, other = model_of(spec), MODELS.build(MODEL, IMAGE, 5, spec).double().eval()
    other.load_state_dict(load(save(model.state_dict())))
    assert torch.equal(model(pictures()), other(pictures()))


@every
@pytest.mark.parametrize("grid", [(6, 8), (2, 3), (1, 5), (5, 1)])
def test_another_resolution_fits_into_the_span_or_goes_beyond(spec, grid):
    model, images = model_of(spec), pictures(grid=grid)
    fitted = model(images)
    assert fitted.isfinite().all()
    assert same(fitted, model(images, Positions.of(grid, fit=GRID)))
    beyond = model(images, Positions.of(grid))
    assert beyond.isfinite().all()
    if grid == (6, 8):  # on a single row some heads may see nobody, at whatever distance
        by_cell = " + " not in spec and traits_of(spec) & {"permutation-blind", "by-cell"}
        assert same(fitted, beyond) == bool(by_cell or "fractional" in spec)


@every
def test_float32_agrees_with_float64(spec):
    single, double = model_of(spec, torch.float32), model_of(spec)
    double.load_state_dict(single.state_dict())
    assert double(pictures()).dtype == torch.float64
    assert torch.allclose(single(pictures(dtype=torch.float32)).double(), double(pictures()), rtol=1e-3, atol=1e-3)


@every
def test_patch_dropout_keeps_the_places_of_the_patches_it_keeps(spec):
    model, x = model_of(spec), tokens()
    kept = torch.tensor([[0, 3, 4, 9], [11, 2, 5, 1], [7, 6, 8, 10]])
    some = x.gather(1, kept[..., None].expand(-1, -1, 32))
    together = forward(model, some, Positions.of(GRID).take(kept))
    alone = [forward(model, some[i : i + 1], Positions.of(GRID).take(kept[i : i + 1])) for i in range(3)]
    assert same(together, torch.cat(alone))
    added = model.encoding.embed(x, Positions.of(GRID)) - x
    kept_added = model.encoding.embed(some, Positions.of(GRID).take(kept)) - some
    assert same(kept_added, added.expand(3, -1, -1).gather(1, kept[..., None].expand(-1, -1, 32)))


@single
def test_what_is_said_of_a_pair_depends_on_other_tokens_only_if_declared(spec):
    model, x = model_of(spec), tokens()
    kept = torch.tensor([0, 3, 4, 9, 11])
    whole = pair_logits(model, x, Positions.of(GRID))[:, :, kept][..., kept]
    holds(not same(pair_logits(model, x[:, kept], Positions.of(GRID).take(kept)), whole), spec, "contextual")


@single
def test_composition_works_in_either_order(spec):
    first, second = model_of(f"{spec} + learned"), model_of(f"learned + {spec}")
    second.encoding.parts[1].load_state_dict(first.encoding.parts[0].state_dict())
    second.encoding.parts[0].load_state_dict(first.encoding.parts[1].state_dict())
    state = {k: v for k, v in first.state_dict().items() if not k.startswith("encoding")}
    second.load_state_dict(state, strict=False)
    assert same(first(pictures()), second(pictures()))


@pytest.mark.parametrize("spec", [*(spec for spec in OPTIONS if spec.startswith("sape2")), "sape2", "learned + sape2"])
def test_logits_given_whole_are_products_and_bias_and_so_are_their_gradients(spec):
    model, pos = model_of(spec), Positions.of(GRID)
    for prefix in (0, 2):
        q, k = torch.randn(2, 3, 2, N + prefix, 16, dtype=torch.float64, requires_grad=True).unbind()
        logits = model.encoding.score(q, k, pos, 0)
        assert logits is not None
        expected = q @ k.mT * 0.25 + widen(model.encoding.bias(q, k, pos, 0), N + prefix)
        assert same(logits, expected)
        weight, inputs = torch.randn_like(expected), (q, k, *model.encoding.parameters())
        found, wanted = (torch.autograd.grad((x * weight).sum(), inputs, allow_unused=True) for x in (logits, expected))
        assert all(a is b is None or same(a, b) for a, b in zip(found, wanted, strict=True))


def exports(spec, positions):
    """Whether the exported model computes the same logits, without positions, with them, or with some hidden."""
    model, images = model_of(spec, torch.float32), pictures(dtype=torch.float32)
    pos = Positions.of(GRID).permute(shuffled())
    inputs = {"none": (images,), "given": (images, pos), "hidden": (images, pos.hide(torch.arange(N)[None] < 4))}
    exported = torch.export.export(model, inputs[positions]).module()
    return torch.allclose(exported(*inputs[positions]), model(*inputs[positions]), atol=1e-5)


@single
@pytest.mark.filterwarnings("ignore")  # torch's own, while it traces
def test_every_encoding_can_be_exported(spec):
    assert exports(spec, "hidden")


@pytest.mark.slow
@every
@pytest.mark.parametrize("positions", ["none", "given", "hidden"])
@pytest.mark.filterwarnings("ignore")
def test_every_option_can_be_exported_without_with_and_with_hidden_positions(spec, positions):
    assert exports(spec, positions)


def test_positions_made_by_hand_hide_what_they_say_they_hide():
    pos = Positions.of(GRID)
    by_hand = Positions(GRID, pos.coords, pos.cells, torch.zeros_like(pos.known))
    for spec in ("learned", "rope", "relative"):
        model, x = model_of(spec), tokens()
        hidden = forward(model, x, pos.hide(torch.ones(1, N, dtype=torch.bool)))
        assert same(forward(model, x, by_hand), hidden)


class Mover(PositionEncoding):
    """Turns the tokens round, hides some, and is sorry for it."""

    def arrange(self, x, pos):
        order = torch.arange(x.shape[1]).flip(0)
        return x[:, order], pos.permute(order).hide(torch.arange(x.shape[1])[None] < 3)

    def penalty(self, pos, whole):
        return (~pos.known).sum() * 0.5

    def advance(self, progress):
        self.heard = progress


def test_hooks_that_move_hide_and_penalise_reach_the_model_alone_and_in_a_sum():
    model, images = model_of("learned"), pictures()
    learned = model.encoding
    order = torch.arange(N).flip(0)
    x = model.project(patchify(images, model.patch))
    pos = Positions.of(GRID).permute(order).hide(torch.arange(N)[None] < 3)
    expected = forward(model, x[:, order], pos)
    model.encoding = Mover() + learned
    logits, penalty = model.step(images)
    assert same(logits, expected) and penalty == 1.5
    model.encoding.advance(0.25)
    assert model.encoding.parts[0].heard == 0.25


def test_a_table_first_used_in_inference_can_be_trained_with_later():
    model = model_of("sinusoidal + learned", torch.float32)
    images = pictures(dtype=torch.float32, grid=(6, 8))
    with torch.inference_mode():
        model(images)
    model(images).sum().backward()


def test_a_geometry_that_an_encoding_cannot_serve_is_refused_at_once():
    with pytest.raises(ValueError, match="width that 4 divides, not 30"):
        ENCODINGS.build("sinusoidal", Geometry(dim=30, heads=2, depth=1, grid=GRID))

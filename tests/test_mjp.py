"""The encoding ``mjp``: shuffled and hidden patches, the unknown vector, the penalty."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import strategies as st

from vitpos.encodings import ENCODINGS
from vitpos.encodings.base import Geometry
from vitpos.encodings.mjp import along_main_directions
from vitpos.errors import UserError
from vitpos.models import MODELS
from vitpos.positions import Positions
from vitpos.training.loop import parameter_groups

GRIDS = st.tuples(st.integers(1, 9), st.integers(1, 9))
MODEL = "vit(patch=(2, 3), dim=32, depth=2, heads=2)"
IMAGE = (1, 8, 15)  # a grid of 4×5
GRID = (4, 5)
LABELS = torch.tensor([0, 1])


def model_of(spec):
    torch.manual_seed(0)
    model = MODELS.build(MODEL, IMAGE, 5, spec)
    with torch.no_grad():
        for parameter in model.encoding.parameters():
            parameter.copy_(torch.randn_like(parameter))
    return model


@pytest.mark.parametrize("spec", ["learned", "rope", "relative", "cpe", "sape2", "alibi + sinusoidal"])
def test_without_a_mask_it_is_the_plain_model(spec):
    plain, puzzle = model_of(spec).eval(), model_of(f"{spec} + mjp(ratio=0.5)").eval()
    state = {name.replace("encoding.parts.0.", "encoding."): t for name, t in puzzle.state_dict().items()}
    if "+" in spec:
        state = puzzle.state_dict()
    plain.load_state_dict({name: state[name] for name in plain.state_dict()})
    images = torch.randn(3, *IMAGE)
    assert torch.equal(plain(images), puzzle(images))
    puzzle.train()
    assert not torch.equal(plain(images), puzzle(images))


def test_the_unknown_vector_is_added_where_and_only_where_a_place_is_hidden():
    encoding = model_of("learned + mjp").encoding
    mask = torch.rand(3, 20) < 0.4
    added = encoding.embed(torch.zeros(3, 20, 32), Positions.of(GRID).hide(mask))
    table, unknown = encoding.parts[0].table.flatten(0, 2), encoding.parts[1].unknown
    assert torch.equal(added[mask], unknown.expand(int(mask.sum()), -1))
    assert torch.equal(added[~mask], table.expand(3, -1, -1)[~mask])


def test_training_shuffles_the_hidden_patches_and_leaves_the_others():
    encoding = model_of("learned + mjp(ratio=0.5, per='image')").encoding.train()
    x = torch.randn(64, 20, 32)
    moved, pos = encoding.arrange(x, Positions.of(GRID))
    assert torch.equal(moved[pos.known], x[pos.known])
    assert torch.allclose(moved.sum(1), x.sum(1), atol=1e-5) and not torch.equal(moved, x)
    assert len(pos.known) == 64 and len(pos.known.unique(dim=0)) > 32
    _, shared = model_of("learned + mjp(ratio=0.5)").encoding.train().arrange(x, Positions.of(GRID))
    assert len(shared.known) == 1


@pytest.mark.parametrize("dal", ["linear", "nonlinear", "pca"])
def test_the_penalty_is_the_mean_error_in_cells_where_places_are_known(dal):
    encoding = model_of(f"learned + mjp(dal={dal!r}, weight=0.5)").encoding
    mask = torch.zeros(1, 20, dtype=torch.bool)
    mask[0, [3, 7, 8]] = True
    table = encoding.parts[0].table.flatten(0, 2)
    penalty = encoding.penalty(Positions.of(GRID).hide(mask), encoding)
    truth = torch.cartesian_prod(torch.arange(4.0), torch.arange(5.0))
    if dal == "pca":  # which way its two directions point is left open
        main = torch.linalg.svd(table[~mask[0]] - table[~mask[0]].mean(0))[2][:2].mT
        ways = [table @ main * torch.tensor([a, b]) for a in (1, -1) for b in (1, -1)]
    else:
        ways = [encoding.parts[1].head(table)]
    errors = torch.stack([0.5 * F.l1_loss(found[~mask[0]], truth[~mask[0]]) for found in ways])
    assert (errors - penalty).abs().min() < 1e-5
    penalty.backward()
    gradient = encoding.parts[0].table.grad.flatten(0, 2)
    assert gradient[~mask[0]].any(1).all() and not gradient[mask[0]].any()
    assert not encoding.parts[1].unknown.grad.any()


@pytest.mark.parametrize("shape", [(7, 12), (40, 5), (3, 3)])
@pytest.mark.parametrize("hidden", [0, 2])
def test_main_directions_are_those_of_a_full_decomposition_and_so_are_their_gradients(shape, hidden):
    hidden = min(hidden, shape[0] - 3)
    vectors = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    known = torch.arange(shape[0]) >= hidden
    weights = torch.randn(shape[0], 2, dtype=torch.float64)
    ours = along_main_directions(vectors[None], known[None])[0]
    main = torch.linalg.svd(vectors[known] - vectors[known].mean(0), full_matrices=False)[2][:2].mT
    theirs = vectors @ (main * ((vectors @ main) * ours).sum(0).sign().detach())  # which way they point is left open
    assert torch.allclose(ours, theirs, atol=1e-8)
    gradients = [torch.autograd.grad((weights * found).sum(), vectors)[0] for found in (ours, theirs)]
    assert torch.allclose(*gradients, atol=1e-6 * gradients[1].abs().max().item())


def test_where_there_is_no_direction_nothing_is_found_and_nothing_breaks():
    vectors = torch.zeros(1, 6, 4, requires_grad=True)
    for known in (torch.ones(1, 6), torch.zeros(1, 6)):
        found = along_main_directions(vectors, known.bool())
        assert not found.any() and torch.autograd.grad(found.sum(), vectors)[0].isfinite().all()
    line = (torch.arange(6.0)[:, None] * torch.ones(4))[None].requires_grad_()  # one direction only
    found = along_main_directions(line, torch.ones(1, 6).bool())
    assert found.isfinite().all() and torch.autograd.grad(found.sum(), line)[0].isfinite().all()


def test_the_penalty_reaches_tables_that_are_added_and_no_others():
    model = model_of("learned + relative + mjp")
    model.encoding.penalty(Positions.of(GRID), model.encoding).backward()
    learned, relative, _ = model.encoding.parts
    assert learned.table.grad.any() and all(p.grad is None for p in relative.parameters())
    assert all(p.grad is None for p in model.blocks.parameters())
    alone = model_of("rope + mjp").encoding
    assert alone.penalty(Positions.of(GRID), alone) == 0


def test_cls_and_registers_are_never_masked_or_moved():
    model = MODELS.build(
        "vit(patch=(2, 3), dim=32, depth=1, heads=2, registers=2)", IMAGE, 10, "learned + mjp(ratio=1.0)"
    )
    seen = []
    model.blocks[0].register_forward_hook(lambda module, inputs, output: seen.append(inputs[0]))
    model.train().features(torch.randn(2, *IMAGE))
    assert torch.equal(seen[0][:, :3], model.prefix.expand(2, -1, -1)), "CLS and registers are what they were"
    unknown = model.encoding.parts[1].unknown
    bare = (seen[0][:, 3:] - unknown) - model.patch_tokens(torch.zeros(1, *IMAGE))
    assert bare.abs().sum() > 0 and seen[0].shape[1] == 3 + 20


def test_a_slot_index_stays_with_its_slot_when_patches_move():
    encoding = model_of("learned + mjp(ratio=1.0, unknown=False, index=True, dal=None, derange=True)").encoding.train()
    learned, puzzle = encoding.parts
    torch.nn.init.normal_(puzzle.index.table)
    x = torch.randn(2, 20, 32)
    moved, pos = encoding.arrange(x, Positions.of(GRID))
    slots = puzzle.index.table.flatten(0, 2) + learned.table.flatten(0, 2)
    assert torch.allclose(encoding.embed(moved, pos) - moved, slots.expand(2, -1, -1), atol=1e-5)
    assert not (moved == x).all(-1).any(), "no patch is where it was"


def test_a_slot_keeps_its_index_where_the_place_is_hidden():
    encoding = model_of("learned + mjp(index=True)").encoding
    puzzle = encoding.parts[1]
    torch.nn.init.normal_(puzzle.index.table)
    added = encoding.embed(torch.zeros(1, 20, 32), Positions.of(GRID).hide(torch.ones(1, 20, dtype=torch.bool)))
    assert torch.allclose(added[0], puzzle.unknown + puzzle.index.table.flatten(0, 2))


def test_the_published_codes_blocks_start_and_decay():
    encoding = model_of("learned(std=1.0, decay=True) + mjp(std=1.0, decay=True)").encoding
    assert encoding.parts[1].unknown.std() > 0.5
    decaying, _ = parameter_groups(torch.nn.ModuleDict({"encoding": encoding}), 0.05)
    assert {id(p) for p in decaying["params"]} == {id(encoding.parts[0].table), id(encoding.parts[1].unknown)}
    geometry = Geometry(32, 2, 1, (28, 28))
    exact = ENCODINGS.build("mjp(ratio=0.15, blocks='exact')", geometry).train()
    _, pos = exact.arrange(torch.zeros(1, 784, 32), Positions.of((28, 28)))
    assert int((~pos.known).sum()) == 117
    hidden = {}
    for blocks in ("scaled", "published"):  # 24 cells: less than the smallest block scaled to this grid, of 32
        puzzle = ENCODINGS.build(f"mjp(ratio=0.031, blocks={blocks!r}, per='image')", geometry).train()
        _, pos = puzzle.arrange(torch.zeros(200, 784, 32), Positions.of((28, 28)))
        hidden[blocks] = (~pos.known).sum(1).float().mean()
    assert hidden["scaled"] < hidden["published"] <= 24


def test_a_ratio_that_masks_no_patch_is_refused():
    with pytest.raises(UserError, match=r"masks none of the 16 cells.*0\.0625"):
        ENCODINGS.build("mjp(ratio=0.03)", Geometry(32, 2, 1, (4, 4)))


def test_the_published_codes_gate_and_schedule():
    encoding = model_of("learned + mjp(ratio=1.0, probability=0.5, warmup=0.25, fade=0.5, weight=1.0)").encoding.train()
    puzzle, x, pos = encoding.parts[1], torch.randn(2, 20, 32), Positions.of(GRID)
    encoding.advance(0.2)
    assert encoding.arrange(x, pos)[1] is pos
    encoding.advance(0.3)
    masked = sum(encoding.arrange(x, pos)[1] is not pos for _ in range(400))
    assert 150 < masked < 250
    for progress, weight in ((0.125, 0.5), (0.25, 1.0), (0.625, 0.75), (1.0, 0.5)):
        encoding.advance(progress)
        assert puzzle._weight() == pytest.approx(weight)


def test_options_that_cannot_be_are_named():
    for spec, message in (("mjp(ratio=1.2)", "ratio=1.2"), ("mjp(layers=0)", "layers=0")):
        with pytest.raises(UserError, match=message):
            MODELS.build(MODEL, IMAGE, 5, spec)

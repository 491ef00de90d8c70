"""The masked jigsaw puzzle: shuffles, the unknown vector, the slot index, the penalty."""

import pytest
import torch
import torch.nn.functional as F

from vitpos.encodings import ENCODINGS
from vitpos.encodings.base import Geometry
from vitpos.errors import InputError, Notice
from vitpos.models import MODELS
from vitpos.models.token_embedding import embed
from vitpos.positions import Positions
from vitpos.training.loop import parameter_groups

MODEL = "vit(patch=(2, 3), dim=32, depth=2, heads=2)"


IMAGE = (1, 8, 15)  # a grid of 4×5


GRID = (4, 5)


def model_of(spec):
    torch.manual_seed(0)
    model = MODELS.build(MODEL, IMAGE, 5, spec)
    with torch.no_grad():
        for parameter in model.encoding.parameters():
            parameter.copy_(torch.randn_like(parameter))
    return model


@pytest.mark.parametrize("spec", ["learned", "rope", "relative", "cpe", "sape2", "alibi + sinusoidal"])
def test_without_a_mask_it_is_the_plain_model(spec):
    plain, mjp = model_of(spec).eval(), model_of(f"{spec} + mjp(mask_ratio=0.5)").eval()
    state = {name.replace("encoding.encodings.0.", "encoding."): t for name, t in mjp.state_dict().items()}
    if "+" in spec:
        state = mjp.state_dict()
    plain.load_state_dict({name: state[name] for name in plain.state_dict()})
    images = torch.randn(3, *IMAGE)
    assert torch.equal(plain(images), mjp(images))
    mjp.train()
    assert not torch.equal(plain(images), mjp(images))


def test_the_unknown_vector_is_added_where_and_only_where_a_position_is_hidden():
    encoding = model_of("learned + mjp").encoding
    mask = torch.rand(3, 20) < 0.4
    added = embed(encoding, torch.zeros(3, 20, 32), Positions.from_grid(GRID).hide(mask), 0)
    table, unknown = encoding.parts[0].table.flatten(0, 2), encoding.parts[1].unknown
    assert torch.equal(added[mask], unknown.expand(int(mask.sum()), -1))
    assert torch.equal(added[~mask], table.expand(3, -1, -1)[~mask])


def test_training_shuffles_the_hidden_patches_and_leaves_the_others():
    encoding = model_of("learned + mjp(mask_ratio=0.5, mask_per='image')").encoding.train()
    x = torch.randn(64, 20, 32)
    moved, pos = encoding.augment(x, Positions.from_grid(GRID))
    assert torch.equal(moved[pos.known], x[pos.known])
    assert torch.allclose(moved.sum(1), x.sum(1), atol=1e-5) and not torch.equal(moved, x)
    assert len(pos.known) == 64 and len(pos.known.unique(dim=0)) > 32
    _, shared = model_of("learned + mjp(mask_ratio=0.5)").encoding.train().augment(x, Positions.from_grid(GRID))
    assert len(shared.known) == 1


@pytest.mark.parametrize("localization", ["linear", "mlp", "pca"])
def test_the_penalty_is_the_mean_error_in_cells_where_positions_are_known(localization):
    encoding = model_of(f"learned + mjp(localization={localization!r}, localization_weight=0.5)").encoding
    mask = torch.zeros(1, 20, dtype=torch.bool)
    mask[0, [3, 7, 8]] = True
    table = encoding.parts[0].table.flatten(0, 2)
    penalty = encoding.penalty(Positions.from_grid(GRID).hide(mask))
    truth = torch.cartesian_prod(torch.arange(4.0), torch.arange(5.0))
    if localization == "pca":  # which way its two directions point is left open
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


def test_the_papers_penalty_is_the_mean_l1_norm_of_the_error_and_the_published_codes_is_half_of_it():
    model = model_of("learned + mjp(localization_weight=0.5, localization_reduction='sum')")
    table, head = model.encoding.parts[0].table[0], model.encoding.parts[1].head
    mask = torch.rand(1, 20, generator=torch.Generator().manual_seed(0)) < 0.3
    total, count = 0.0, 0
    for row in range(4):  # eq. 2: the expectation of ‖(i, j) − g(E_ij)‖₁ over the positions that are not masked
        for column in range(5):
            if not mask[0, row * 5 + column]:
                i, j = head(table[row, column]).tolist()
                total, count = total + abs(i - row) + abs(j - column), count + 1
    pos = Positions.from_grid(GRID).hide(mask)
    assert model.encoding.penalty(pos).item() == pytest.approx(0.5 * total / count, rel=1e-5)
    published = model_of("learned + mjp(localization_weight=0.5)").encoding
    assert published.penalty(pos).item() == pytest.approx(0.25 * total / count, rel=1e-5)


def test_the_penalty_trains_added_tables_and_no_others():
    model = model_of("learned + relative + mjp")
    model.encoding.penalty(Positions.from_grid(GRID)).backward()
    learned, relative, _ = model.encoding.parts
    assert learned.table.grad.any() and all(p.grad is None for p in relative.parameters())
    assert all(p.grad is None for p in model.blocks.parameters())
    alone = model_of("rope + mjp").encoding
    assert alone.penalty(Positions.from_grid(GRID)) == 0


def test_cls_and_registers_are_never_masked_or_moved():
    model = MODELS.build(
        "vit(patch=(2, 3), dim=32, depth=1, heads=2, registers=2)", IMAGE, 10, "learned + mjp(mask_ratio=1.0)"
    )
    seen = []
    model.blocks[0].register_forward_hook(lambda module, inputs, output: seen.append(inputs[0]))
    model.train().forward_features(torch.randn(2, *IMAGE))
    assert torch.equal(seen[0][:, :3], model.prefix_tokens.expand(2, -1, -1)), "CLS and registers are what they were"
    unknown = model.encoding.parts[1].unknown
    bare = (seen[0][:, 3:] - unknown) - model.patch_tokens(torch.zeros(1, *IMAGE))
    assert bare.abs().sum() > 0 and seen[0].shape[1] == 3 + 20


def test_a_slot_index_stays_with_its_slot_when_patches_move():
    encoding = model_of(
        "learned + mjp(mask_ratio=1.0, unknown=False, slot_index=True, localization=None, derangement=True)"
    ).encoding.train()
    learned, mjp = encoding.parts
    torch.nn.init.normal_(mjp.slots.table)
    x = torch.randn(2, 20, 32)
    moved, pos = encoding.augment(x, Positions.from_grid(GRID))
    slots = mjp.slots.table.flatten(0, 2) + learned.table.flatten(0, 2)
    assert torch.allclose(embed(encoding, moved, pos, 0) - moved, slots.expand(2, -1, -1), atol=1e-5)
    assert not (moved == x).all(-1).any(), "no patch is where it was"


def test_a_slot_keeps_its_index_where_the_position_is_hidden():
    encoding = model_of("learned + mjp(slot_index=True)").encoding
    mjp = encoding.parts[1]
    torch.nn.init.normal_(mjp.slots.table)
    added = embed(
        encoding, torch.zeros(1, 20, 32), Positions.from_grid(GRID).hide(torch.ones(1, 20, dtype=torch.bool)), 0
    )
    assert torch.allclose(added[0], mjp.unknown + mjp.slots.table.flatten(0, 2))


def test_the_published_codes_blocks_start_and_decay():
    encoding = model_of("learned(std=1.0, weight_decay=True) + mjp(init_std=1.0, weight_decay=True)").encoding
    assert encoding.parts[1].unknown.std() > 0.5
    decaying, _ = parameter_groups(torch.nn.ModuleDict({"encoding": encoding}), 0.05)
    assert {id(p) for p in decaying["params"]} == {id(encoding.parts[0].table), id(encoding.parts[1].unknown)}
    geometry = Geometry(32, 2, 1, (28, 28))
    exact = ENCODINGS.build("mjp(mask_ratio=0.15, block_size='exact')", geometry).train()
    _, pos = exact.augment(torch.zeros(1, 784, 32), Positions.from_grid((28, 28)))
    assert int((~pos.known).sum()) == 117
    hidden = {}
    for blocks in ("scaled", "published"):  # 24 cells: less than the smallest block scaled to this grid, of 32
        mjp = ENCODINGS.build(f"mjp(mask_ratio=0.031, block_size={blocks!r}, mask_per='image')", geometry).train()
        _, pos = mjp.augment(torch.zeros(200, 784, 32), Positions.from_grid((28, 28)))
        hidden[blocks] = (~pos.known).sum(1).float().mean()
    assert hidden["scaled"] < hidden["published"] <= 24


def test_a_ratio_that_masks_no_patch_is_refused():
    with pytest.raises(InputError, match=r"masks none of the 16 cells.*0\.0625"):
        ENCODINGS.build("mjp(mask_ratio=0.03)", Geometry(32, 2, 1, (4, 4)))


@pytest.mark.parametrize(("grid", "ratio", "enough"), [((8, 8), 0.03, "0.0313"), ((5, 9), 0.04, "0.0445")])
def test_a_mask_of_one_patch_which_shuffles_nothing_is_a_warning_with_the_smallest_ratio_that_does(grid, ratio, enough):
    geometry, count = Geometry(32, 2, 1, grid), grid[0] * grid[1]
    with pytest.warns(Notice, match=rf"masks 1 of the {count} cells of a .* shuffles nothing; take {enough} or more"):
        encoding = ENCODINGS.build(f"mjp(mask_ratio={ratio}, mask_per='image')", geometry).train()
    x = torch.randn(50, count, 32)
    moved, pos = encoding.augment(x, Positions.from_grid(grid))
    assert torch.equal(moved, x) and (~pos.known).sum(1).max() == 1
    encoding = ENCODINGS.build(f"mjp(mask_ratio={enough}, mask_per='image', block_size='exact')", geometry).train()
    assert not torch.equal(encoding.augment(x, Positions.from_grid(grid))[0], x)
    ENCODINGS.build(f"mjp(mask_ratio={ratio}, shuffle=False)", geometry)  # nothing is to be shuffled: no warning


def test_the_published_codes_gate_and_schedule():
    encoding = model_of(
        "learned + mjp(mask_ratio=1.0, mask_prob=0.5, mask_warmup=0.25, localization_fade=0.5, localization_weight=1.0)"
    ).encoding.train()
    mjp, x, pos = encoding.parts[1], torch.randn(2, 20, 32), Positions.from_grid(GRID)
    mjp.set_progress(0.2)
    assert encoding.augment(x, pos)[1] is pos
    mjp.set_progress(0.3)
    masked = sum(encoding.augment(x, pos)[1] is not pos for _ in range(400))
    assert 150 < masked < 250
    mjp.set_progress(0.25)
    full = encoding.penalty(pos).item()
    assert full > 0
    for progress, weight in ((0.125, 0.5), (0.625, 0.75), (1.0, 0.5)):
        mjp.set_progress(progress)
        assert encoding.penalty(pos).item() == pytest.approx(weight * full)


def test_wrong_options_are_named():
    for spec, message in (("mjp(mask_ratio=1.2)", "ratio=1.2"), ("mjp(localization_layers=0)", "layers=0")):
        with pytest.raises(InputError, match=message):
            MODELS.build(MODEL, IMAGE, 5, spec)

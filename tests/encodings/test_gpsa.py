"""GPSA is timm's, and its heads start as the cells of a convolution kernel."""

import pytest
import torch

from tests.encodings.builders import (
    CELLS,
    DIM,
    GRID,
    HEADS,
    HIDDEN,
    PREFIX,
    WIDTH,
    N,
    attention_call,
    build,
    positions,
    random,
)
from tests.references import peer
from vitpos.encodings import ENCODINGS
from vitpos.encodings.base import Geometry
from vitpos.errors import InputError
from vitpos.models.attention import SelfAttention
from vitpos.positions import Positions
from vitpos.testing import check_encoding


def timm_gpsa(heads=HEADS, dim=DIM):
    return peer("timm.models.convit").GPSA(dim, num_heads=heads)


def offsets_of(cells):
    """timm's features of each pair (1, N, N, 3): column, row and squared distance from query to key."""
    features = torch.zeros(1, len(cells), len(cells), 3)
    for i, (row, column) in enumerate(cells):
        for j, (other_row, other_column) in enumerate(cells):
            right, down = other_column - column, other_row - row
            features[0, i, j] = torch.tensor([right, down, right**2 + down**2])
    return features


@pytest.mark.parametrize("grid", [(4, 4), GRID])
def test_weights_agree_with_timm(grid):
    theirs, encoding = timm_gpsa(), build("gpsa(layers=2)", dtype=torch.float32)
    with torch.no_grad():
        theirs.pos_proj.weight.copy_(encoding.offset_weight[1])
        theirs.gating_param.copy_(encoding.gate[1])
    cells = [(row, column) for row in range(grid[0]) for column in range(grid[1])]
    features = offsets_of(cells)
    if grid[0] == grid[1]:
        torch.testing.assert_close(theirs.get_rel_indices(16), features)
    theirs.rel_indices = features  # timm computes them for square grids only
    x = random(2, len(cells), DIM, dtype=torch.float32)
    q, k = theirs.qk(x).unflatten(2, (2, HEADS, WIDTH)).permute(2, 0, 3, 1, 4)
    content = (q @ k.mT * WIDTH**-0.5).softmax(-1)
    ours = encoding.mix_weights(content, Positions.from_grid(grid), 1)
    assert (ours - theirs.get_attention(x)).abs().max() < 1e-5


@pytest.mark.parametrize("heads", [1, 3, 4, 9, 10])
def test_initial_weights_agree_with_timm(heads):
    theirs = timm_gpsa(heads, 8 * heads)
    theirs.local_init()
    ours = ENCODINGS.build("gpsa", Geometry(8 * heads, heads, 2, GRID))
    local = int(heads**0.5) ** 2
    assert torch.equal(ours.offset_weight[0, :local], theirs.pos_proj.weight[:local])
    assert torch.equal(ours.gate[0], theirs.gating_param) and ours.offset_weight[:, local:].abs().lt(0.2).all()


def test_nine_heads_start_as_a_convolution_of_three_by_three():
    encoding = ENCODINGS.build("gpsa(locality_strength=20.0)", Geometry(72, 9, 1, GRID))
    weights = encoding.position_weights(Positions.from_grid(GRID), 0, torch.float32)[0]
    center = CELLS.index((1, 2))
    attended = {CELLS[weights[head, center].argmax()] for head in range(9)}
    assert attended == {(row, column) for row in (0, 1, 2) for column in (1, 2, 3)}
    assert weights[:, center].amax(-1).min() > 0.99


@pytest.mark.parametrize("kind", ["whole", "hidden", "finer"])
def test_attention_mixes_the_weights_among_known_patches(kind):
    """Each row: what is not spent on prefix tokens and hidden patches is shared out by content and by position."""
    torch.manual_seed(2)
    attention, encoding, pos = SelfAttention(DIM, HEADS).double(), build("gpsa"), positions(kind)
    count = pos.index.shape[1]
    x = random(1, PREFIX + count, DIM)
    q, k, _ = attention.qkv_heads(x)
    expected = (q @ k.mT * WIDTH**-0.5).softmax(-1)[0]
    coords, known = pos.coords[0].double(), pos.known[0].tolist()
    for head in range(HEADS):
        gate, w = encoding.gate[0, head].sigmoid(), encoding.offset_weight[0, head]
        for i in range(count):
            keys = [j for j in range(count) if known[i] and known[j]]
            if not keys:
                continue
            row = expected[head, PREFIX + i].clone()
            offsets = [coords[j] - coords[i] for j in keys]
            scores = torch.stack([w[0] * o[1] + w[1] * o[0] + w[2] * o.square().sum() for o in offsets])
            at = [PREFIX + j for j in keys]
            spent = row[at].sum()
            row[at] = spent * ((1 - gate) * row[at] / spent + gate * scores.softmax(0))
            expected[head, PREFIX + i] = row
    assert (attention_call(attention, x, encoding, pos, 0).weights()[0] - expected).abs().max() < 1e-6


def test_hidden_positions_do_not_change_the_weights_of_the_others():
    encoding, pos = build("gpsa"), Positions.from_grid(GRID)
    moved = pos.with_coords(torch.where(HIDDEN[..., None], pos.coords + 7, pos.coords))
    weights = random(1, HEADS, N, N).softmax(-1)
    here, there = (encoding.mix_weights(weights, p.hide(HIDDEN), 0) for p in (pos, moved))
    assert torch.equal(here[:, :, ~HIDDEN[0]], there[:, :, ~HIDDEN[0]])


def test_later_layers_are_plain():
    encoding, weights = build("gpsa(layers=1)"), random(1, HEADS, N, N).softmax(-1)
    assert encoding.mix_weights(weights, Positions.from_grid(GRID), 1) is weights
    assert [ENCODINGS.build("gpsa", Geometry(32, 2, depth, GRID)).layers for depth in (1, 2, 6, 12)] == [1, 2, 5, 10]


def test_the_options_keep_the_contract():
    check_encoding("gpsa", layers=1, locality_strength=0.5)


@pytest.mark.parametrize("layers", [0, 3])
def test_more_layers_than_the_model_has_are_refused(layers):
    with pytest.raises(InputError, match=f"layers={layers}; choose from 1 to 2"):
        ENCODINGS.build(f"gpsa(layers={layers})", Geometry(32, 2, 2, GRID))

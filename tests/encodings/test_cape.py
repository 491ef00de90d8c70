"""CAPE is its formula, and training moves the positions of each image within the given limits."""

import math

import pytest
import torch

from tests.encodings.builders import CELLS, DIM, GRID, N, build, random
from vitpos.encodings import ENCODINGS
from vitpos.encodings.base import Geometry
from vitpos.errors import InputError
from vitpos.positions import Positions
from vitpos.testing import check_encoding

UNIT = torch.tensor([[2 * row / (GRID[0] - 1) - 1, 2 * column / (GRID[1] - 1) - 1] for row, column in CELLS]).double()
SPACING = torch.tensor([2 / (GRID[0] - 1), 2 / (GRID[1] - 1)], dtype=torch.float64)


def direction(t):
    """The frequencies (row, column) of channel t: magnitudes from 1 to 10, angles of t radians."""
    return 10 ** (t / (DIM // 2 - 1)) * torch.tensor([math.cos(t), math.sin(t)], dtype=torch.float64)


def in_training(options, batch=64):
    """The vectors (B, N, D) that a training step adds."""
    encoding = build(f"cape({options})").train()
    torch.manual_seed(3)
    _, pos = encoding.augment(random(batch, N, DIM), Positions.from_grid(GRID))
    return encoding.vectors(pos, 0, torch.float64)


def moved(vectors):
    """The coordinates (B, N, 2) that the first two channels show; they move by less than half a period."""
    half = DIM // 2
    frequencies = torch.stack([direction(0), direction(1)])  # (2 channels, 2 axes)
    phases = torch.atan2(vectors[..., half : half + 2], vectors[..., :2])
    change = phases - math.pi * UNIT @ frequencies.mT
    change = torch.remainder(change + math.pi, 2 * math.pi) - math.pi
    return UNIT + torch.linalg.solve(frequencies, change[..., None] / math.pi)[..., 0]


def test_outside_training_it_is_its_formula():
    ours = build("cape").vectors(Positions.from_grid(GRID), 0, torch.float64)[0]
    for n in range(N):
        phases = torch.stack([math.pi * direction(t) @ UNIT[n] for t in range(DIM // 2)])
        assert (ours[n] - torch.cat([phases.cos(), phases.sin()])).abs().max() < 1e-6


def test_another_resolution_has_coordinates_between_those_of_the_training_grid():
    encoding = build("cape")
    finer = Positions.from_grid((9, 15), train_grid=GRID)
    ours = encoding.vectors(finer, 0, torch.float64)[0].unflatten(0, (9, 15))[1::3, 1::3].flatten(0, 1)
    assert (ours - encoding.vectors(Positions.from_grid(GRID), 0, torch.float64)[0]).abs().max() < 1e-5


def test_the_global_shift_moves_all_patches_of_an_image_alike():
    change = moved(in_training("global_shift=0.3, local_shift=0.0, global_scale=1.0")) - UNIT
    assert (change - change[:, :1]).abs().max() < 1e-5
    assert 0.25 < change[:, 0].abs().max() < 0.3 and change[:, 0].std(0).min() > 0.1  # another for each image


def test_the_local_shift_moves_each_patch_by_less_than_half_a_cell():
    change = (moved(in_training("global_shift=0.0, local_shift=0.5, global_scale=1.0")) - UNIT) / SPACING
    assert 0.48 < change.abs().max() < 0.5 + 1e-5 and change.std(1).min() > 0.15


def test_the_scale_multiplies_both_axes_of_an_image_by_one_factor():
    at = moved(in_training("global_shift=0.0, local_shift=0.0, global_scale=1.2"))
    factors = at[:, [0, -1]] / UNIT[[0, -1]]  # (B, 2 corners, 2 axes)
    assert (factors - factors[:, :1, :1]).abs().max() < 1e-5
    assert 1 / 1.2 <= factors.min() < 0.87 and 1.15 < factors.max() <= 1.2


def test_without_augmentation_training_changes_nothing():
    still = in_training("global_shift=0.0, local_shift=0.0, global_scale=1.0", batch=2)
    assert torch.allclose(still, build("cape").vectors(Positions.from_grid(GRID), 0, torch.float64).expand(2, -1, -1))


def test_every_step_draws_anew_and_a_seed_repeats_it():
    assert torch.equal(in_training(""), in_training(""))
    encoding = build("cape").train()
    x, pos = torch.zeros(2, GRID[0] * GRID[1], 32), Positions.from_grid(GRID)
    one, other = (encoding.augment(x, pos)[1] for _ in range(2))
    first = encoding.vectors(one, 0, torch.float64)
    assert not torch.equal(first, encoding.vectors(other, 0, torch.float64))
    assert torch.equal(first, encoding.vectors(one, 0, torch.float64)), "one forward pass has one augmentation"


@pytest.mark.parametrize("change", ["hide", "reveal", "select", "to"])
def test_one_step_keeps_its_draw_when_positions_are_hidden_or_selected(change):
    encoding, kept = build("cape").train(), torch.tensor([4, 0, 7])
    pos = encoding.augment(random(2, N, DIM), Positions.from_grid(GRID))[1].hide(torch.arange(N)[None] < 3)
    before = encoding.vectors(pos, 0, torch.float64)
    if change == "select":
        assert torch.allclose(encoding.vectors(pos.select(kept), 0, torch.float64), before[:, kept])
    else:
        arguments = {"hide": [torch.arange(N)[None] > 9], "reveal": [], "to": ["cpu"]}[change]
        assert torch.equal(encoding.vectors(getattr(pos, change)(*arguments), 0, torch.float64), before)


def test_the_localization_loss_of_mjp_uses_the_vectors_that_were_added():
    both = build("cape + mjp(mask_ratio=0.5, localization='linear', localization_weight=1.0)").train()
    x, (cape, mjp) = random(4, N, DIM), both.parts
    _, pos = both.augment(x, Positions.from_grid(GRID))
    error = (mjp.head(cape.vectors(pos, 0, torch.float64)) - pos.coords).abs().mean(-1)  # (B, N)
    known = pos.known.expand(4, -1)
    assert torch.allclose(both.penalty(pos), error[known].mean())


def test_without_a_forward_pass_nothing_is_drawn():
    one, other = build("cape").train(), build("cape").eval()
    pos = Positions.from_grid(GRID)
    assert torch.equal(one.vectors(pos, 0, torch.float64), other.vectors(pos, 0, torch.float64))


def test_the_options_keep_the_contract():
    check_encoding("cape", global_shift=0.0, local_shift=0.2, global_scale=1.0)


@pytest.mark.parametrize("options", ["global_shift=-0.1", "local_shift=-1.0", "global_scale=0.5"])
def test_limits_that_make_no_sense_are_refused(options):
    with pytest.raises(InputError, match=options):
        ENCODINGS.build(f"cape({options})", Geometry(32, 2, 1, (2, 3)))

"""The RoPE of DINOv3 rotates as its release and changes coordinates in training only."""

import math

import pytest
import torch

from tests.encodings.inputs import CELLS, GRID, N, build, queries_and_keys
from vitpos.models.token_embedding import embed
from vitpos.positions import Positions


def test_dino_rotates_as_its_release():
    """The release rotates channel t with t + d/2 by 2π·coordinate/period, rows in the first d/4 of each half."""
    q, _ = queries_and_keys()
    ours = build("rope_dino").eval().rotate(q, q, Positions.from_grid(GRID), 0)[0]
    width = q.shape[-1]
    periods = 100.0 ** (torch.arange(width // 4, dtype=torch.float64) / (width // 4))
    expected = torch.empty_like(q)
    for n, place in enumerate(CELLS):
        unit = [2 * (at + 0.5) / side - 1 for at, side in zip(place, GRID, strict=True)]
        angles = torch.cat([2 * math.pi * unit[0] / periods, 2 * math.pi * unit[1] / periods])
        first, second = q[:, :, n, 0::2], q[:, :, n, 1::2]  # the release's halves are our even and odd channels
        expected[:, :, n, 0::2] = first * angles.cos() - second * angles.sin()
        expected[:, :, n, 1::2] = second * angles.cos() + first * angles.sin()
    assert (ours - expected).abs().max() < 1e-6


def test_dino_changes_coordinates_in_training_only_and_keeps_all_layers_together():
    encoding, still = build("rope_dino(shift_coords=0.2, jitter_coords=1.3)"), build("rope_dino(rescale_coords=1.0)")
    x, pos, q = torch.zeros(2, N, 32).double(), Positions.from_grid(GRID), queries_and_keys()[0]
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


@pytest.mark.filterwarnings("ignore")  # torch's own, while it traces
def test_a_compiled_pass_draws_once_for_all_layers():
    encoding, pos = build("rope_dino(shift_coords=0.5, jitter_coords=1.5)").train(), Positions.from_grid(GRID)

    def rotate(x):
        augmented = encoding.augment(x, pos)[1]
        return [encoding.rotation(augmented, layer, x.dtype)(x) for layer in (0, 1)]

    compiled, x, results = torch.compile(rotate, backend="eager"), torch.randn(2, 2, N, 16), []
    for forward in (rotate, compiled):
        torch.manual_seed(1)
        results.append((*forward(x), torch.rand(1)))
    assert torch.equal(results[1][0], results[1][1]), "both layers use one draw"
    assert all(torch.allclose(one, other) for one, other in zip(*results, strict=True)), "the same as without compile"


def test_equal_encodings_of_a_sum_draw_separately():
    both = build("rope_dino + rope_dino").train()
    x, q = torch.zeros(2, N, 32), queries_and_keys()[0]
    pos = both.augment(x, Positions.from_grid(GRID))[1]
    one, other = (part.rotate(q, q, pos, 0)[0] for part in both.parts)
    assert not torch.allclose(one, other)

"""Golden-gate RoPE agrees with vit-pytorch."""

import pytest
import torch

from tests.encodings.inputs import GRID, HEADS, WIDTH, build, queries_and_keys
from tests.references import peer
from vitpos.encodings import ENCODINGS
from vitpos.encodings.base import Geometry
from vitpos.positions import Positions


@pytest.mark.parametrize(("low", "high", "zeros"), [(0.01, 1.0, 0.0), (0.2, 20.0, 0.25)])
def test_rotation_agrees_with_vit_pytorch(low, high, zeros):
    """vit-pytorch rotates channel t with t + d/2."""
    module = peer("vit_pytorch.vit_nd_rotary")
    theirs = module.GoldenGateRoPENd(2, HEADS, WIDTH, low, high, zeros)
    ours = build(f"rope_golden(min_frequency={low}, max_frequency={high}, zero_fraction={zeros})", dtype=torch.float32)
    q, _ = queries_and_keys(dtype=torch.float32)
    pos = Positions.from_grid(GRID)
    halves = torch.cat([q[..., 0::2], q[..., 1::2]], -1)
    expected = theirs(halves, pos.coords.expand(2, -1, -1)).unflatten(-1, (2, -1)).mT.flatten(-2)
    found = ours.rotate(q, q, pos, 0)[0]
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    assert not torch.allclose(found[:, 0], found[:, 1])
    assert torch.equal(found, ours.rotate(q, q, pos, 1)[0]), "all layers are the same"


def test_directions_cover_the_circle_evenly():
    frequencies = ENCODINGS.build("rope_golden", Geometry(384, 6, 1, GRID)).pair_frequencies()
    assert frequencies.shape == (6, 32, 2)
    angles = torch.atan2(frequencies[..., 0], frequencies[..., 1]).flatten() % torch.pi
    counts = torch.histc(angles, 8, 0, torch.pi)
    assert counts.min() >= 16 and counts.max() <= 32  # 24 on average


@pytest.mark.parametrize(
    ("options", "message"),
    [("zero_fraction=1.0", "zero_fraction=1.0; choose from 0 to below 1"), ("min_frequency=0.0", "min_frequency=0.0")],
)
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        ENCODINGS.build(f"rope_golden({options})", Geometry(32, 2, 1, GRID))

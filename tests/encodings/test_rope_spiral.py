"""Spiral RoPE is the projection on its directions, as in the paper; how that differs from the published code."""

import math

import pytest
import torch
import torch.nn.functional as F

from tests.encodings.inputs import CELLS, GRID, HEADS, build, queries_and_keys
from vitpos.encodings import ENCODINGS
from vitpos.encodings.base import Geometry
from vitpos.positions import Positions


@pytest.mark.parametrize(("width", "directions"), [(32, 4), (16, 2), (48, 6), (8, 4), (24, 4)])
def test_each_pair_is_rotated_by_the_projection_on_its_direction(width, directions):
    encoding = build(f"rope_spiral(directions={directions}, base=50.0, max_frequency=1.2)", width=width)
    q, k = queries_and_keys(width=width)
    found = encoding.rotate(q, k, Positions.from_grid(GRID), 1)
    count = width // 4
    shared = 2 if width % (4 * directions) == 0 else 1
    for x, rotated in zip((q, k), found, strict=True):
        for n, (row, column) in enumerate(CELLS):
            for pair in range(width // 2):
                t = pair % count
                degrees = t // shared % (directions // 2) * 180 / directions + (90 if pair >= count else 0)
                direction = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
                angle = 1.2 * 50.0 ** (-t / count) * (row * direction[0] + column * direction[1])
                a, b = x[:, :, n, 2 * pair], x[:, :, n, 2 * pair + 1]
                expected = a * math.cos(angle) - b * math.sin(angle), a * math.sin(angle) + b * math.cos(angle)
                torch.testing.assert_close(rotated[:, :, n, 2 * pair], expected[0], atol=1e-6, rtol=0)
                torch.testing.assert_close(rotated[:, :, n, 2 * pair + 1], expected[1], atol=1e-6, rtol=0)


def test_all_directions_are_used_equally():
    frequencies = build("rope_spiral(directions=8)", width=64).pair_frequencies()[0]
    degrees = (torch.rad2deg(torch.atan2(frequencies[:, 1], frequencies[:, 0])) % 180).round(decimals=3)
    values, counts = degrees.unique(return_counts=True)
    assert values.tolist() == [22.5 * k for k in range(8)] and counts.tolist() == [4] * 8


def test_two_directions_are_axial_rope_with_rows_first():
    q, k = queries_and_keys()
    pos = Positions.from_grid(GRID)
    spiral = build("rope_spiral(directions=2, base=100.0, max_frequency=1.0)").rotate(q, k, pos, 0)[0]
    swapped = build("rope(base=100.0)").rotate(q.roll(8, -1), k, pos, 0)[0].roll(8, -1)
    torch.testing.assert_close(spiral, swapped)


def test_the_published_code_has_the_same_angles_inside_the_circle_of_the_grid_only():
    """It rotates the table of angles like an image; inside, angles agree up to a constant, which cancels in q·k."""
    side, width = 7, 32
    frequencies = ENCODINGS.build("rope_spiral", Geometry(HEADS * width, HEADS, 1, (side, side))).pair_frequencies()[0]
    coords = Positions.from_grid((side, side)).coords[0].double()
    ours = (coords - 3) @ frequencies.mT  # (N, d/2), about the center
    sizes = 1.5 * 10000.0 ** (-torch.arange(8, dtype=torch.float64) / 8)
    table = torch.cat([coords[:, :1] * sizes, coords[:, 1:] * sizes], -1).unflatten(0, (side, side))  # (7, 7, d/2)
    theirs = table.clone()
    for group in range(8):
        if group % 2:  # every second group of two pairs, by 45 degrees
            c = s = math.sqrt(0.5)
            matrix = torch.tensor([[[c, -s, 0], [s, c, 0]]], dtype=torch.float64)
            image = table[..., 2 * group : 2 * group + 2].permute(2, 0, 1)[None]
            where = F.affine_grid(matrix, image.shape, align_corners=True)
            rotated = F.grid_sample(image, where, mode="bilinear", padding_mode="border", align_corners=True)
            theirs[..., 2 * group : 2 * group + 2] = rotated[0].permute(1, 2, 0)
    theirs = (theirs - theirs[3, 3]).flatten(0, 1)
    inside = (coords - 3).norm(dim=1) <= 3
    torch.testing.assert_close(ours[inside], theirs[inside], atol=1e-6, rtol=0)
    assert (ours - theirs)[~inside].abs().max() > 0.1


@pytest.mark.parametrize("directions", [0, 3, 6])
def test_directions_that_do_not_fit_are_refused(directions):
    with pytest.raises(ValueError, match=f"directions={directions} for heads of width 16; choose an even number"):
        build(f"rope_spiral(directions={directions})")

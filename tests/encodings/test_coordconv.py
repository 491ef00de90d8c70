"""CoordConv as an encoding is a patch projection that has coordinate channels beside the image."""

import math

import pytest
import torch
import torch.nn.functional as F

from tests.encodings.builders import CELLS, DIM, GRID, N, build, random
from vitpos.encodings import ENCODINGS
from vitpos.encodings.base import Geometry
from vitpos.errors import InputError
from vitpos.positions import Positions
from vitpos.testing import check_encoding

PATCH = (4, 2)


def test_it_is_a_patch_projection_with_coordinate_channels_up_to_a_constant():
    """Liu et al.: channels i and j of each pixel, from −1 to 1 between the centers of the outermost pixels."""
    height, width = (side * patch for side, patch in zip(GRID, PATCH, strict=True))
    kernel = random(DIM, 2, *PATCH)  # the weights of both channels for each pixel of a patch
    channels = torch.stack(
        torch.meshgrid(torch.linspace(-1, 1, height), torch.linspace(-1, 1, width), indexing="ij")
    ).double()
    projected = F.conv2d(channels[None], kernel, stride=PATCH)[0].flatten(1).mT  # (N, D)
    encoding = build("coordconv")
    with torch.no_grad():  # pixel centers instead of edges: another scale per axis, n/(n − 1)
        scales = torch.tensor([height / (height - 1), width / (width - 1)], dtype=torch.float64)
        encoding.weight.copy_(kernel.sum((2, 3)).mT * scales[:, None])
    difference = projected - encoding.vectors(Positions.from_grid(GRID), 0, torch.float64)[0]
    assert (difference - difference[:1]).abs().max() < 1e-5  # the bias of the projection


@pytest.mark.parametrize("radius", [False, True])
def test_the_vector_of_a_position_is_its_formula(radius):
    encoding = build(f"coordconv(radius={radius})")
    ours = encoding.vectors(Positions.from_grid(GRID), 0, torch.float64)[0]
    for n, (row, column) in enumerate(CELLS):
        at = [2 * (row + 0.5) / GRID[0] - 1, 2 * (column + 0.5) / GRID[1] - 1]
        at += [math.hypot(*at)] if radius else []
        expected = sum(value * vector for value, vector in zip(at, encoding.weight, strict=True))
        assert (ours[n] - expected).abs().max() < 1e-6


def test_the_radius_keeps_the_contract():
    check_encoding("coordconv", radius=True)


def test_initial_weights_have_the_standard_deviation():
    weight = ENCODINGS.build("coordconv(std=0.5)", Geometry(4096, 2, 1, GRID)).weight
    assert weight.shape == (2, 4096) and 0.47 < weight.std() < 0.53 and N == 15
    with pytest.raises(InputError, match="std=-1"):
        ENCODINGS.build("coordconv(std=-1.0)", Geometry(32, 2, 1, GRID))

"""The conditional encoding adds what conv2d gives."""

import torch
import torch.nn.functional as F

from tests.encodings.inputs import GRID, N, build
from vitpos.positions import Positions


def test_a_convolution_adds_what_conv2d_gives():
    encoding = build("cpe(layers=(0,))")
    x = torch.randn(2, N, 32, dtype=torch.float64)
    kernel = encoding.convolutions["0"]
    image = x.mT.unflatten(2, GRID)
    expected = x + F.conv2d(image, kernel.weight, kernel.bias, padding=1, groups=32).flatten(2).mT
    assert torch.allclose(encoding.update(x, Positions.from_grid(GRID), 0), expected)

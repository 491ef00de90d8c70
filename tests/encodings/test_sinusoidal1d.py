"""Sinusoids of the index agree with positional-encodings."""

import torch

from tests.encodings.inputs import GRID, N, build
from tests.references import peer
from vitpos.positions import Positions


def test_sines_of_the_index_agree_with_positional_encodings():
    theirs = peer("positional_encodings.torch_encodings").PositionalEncoding1D(32)(torch.zeros(1, N, 32))[0]
    assert (build("sinusoidal1d").vectors(Positions.from_grid(GRID), 0, torch.float32)[0] - theirs).abs().max() < 1e-5

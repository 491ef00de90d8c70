"""The fast rotation of channel pairs is the plain one, in values and gradients; rotations need the width of a head."""

import pytest
import torch

from tests.encodings.inputs import GRID, build, queries_and_keys
from vitpos.encodings._rotary import pair_factors, rotate_pairs, rotate_pairs_plain
from vitpos.positions import Positions


def test_the_fast_rotation_is_the_plain_one_with_its_gradients():
    torch.manual_seed(0)
    x = torch.randn(2, 3, 5, 8, dtype=torch.float64, requires_grad=True)
    angles = torch.randn(3, 5, 4, dtype=torch.float64, requires_grad=True)
    weight = torch.randn_like(x)
    found = []
    for rotate in (rotate_pairs, rotate_pairs_plain):
        y = rotate(pair_factors(angles, x.dtype), x)
        first = torch.autograd.grad((y * weight).sum(), (x, angles), create_graph=True)
        second = torch.autograd.grad(sum(g.square().sum() for g in first), (x, angles), allow_unused=True)
        found.append((y, *first, *second))
    for fast, plain in zip(*found, strict=True):
        assert (fast is None) == (plain is None)
        if fast is not None:
            torch.testing.assert_close(fast, plain, rtol=1e-12, atol=1e-12)


def test_an_encoding_that_changes_the_width_comes_last():
    q, k = queries_and_keys()
    assert build("rope + pope").rotate(q, k, Positions.from_grid(GRID), 0)[0].shape[-1] == 32
    with pytest.raises(ValueError, match=r"'rope' rotates heads of width 16, not 32; .* 'rope \+ pope'"):
        build("pope + rope").rotate(q, k, Positions.from_grid(GRID), 0)

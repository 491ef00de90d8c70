"""Spherical RoPE is a product of two rotations per triple of channels, and not a function of the offset."""

import pytest
import torch

from tests.encodings.inputs import CELLS, GRID, build, queries_and_keys
from vitpos.encodings import ENCODINGS
from vitpos.encodings.base import Geometry
from vitpos.models.attention import attention_logits
from vitpos.positions import Positions


def about_first(angle):
    c, s = torch.tensor(angle, dtype=torch.float64).cos(), torch.tensor(angle, dtype=torch.float64).sin()
    return torch.tensor([[1, 0, 0], [0, c, -s], [0, s, c]], dtype=torch.float64)


def about_third(angle):
    c, s = torch.tensor(angle, dtype=torch.float64).cos(), torch.tensor(angle, dtype=torch.float64).sin()
    return torch.tensor([[c, -s, 0], [s, c, 0], [0, 0, 1]], dtype=torch.float64)


@pytest.mark.parametrize("width", [12, 16, 8, 3])
@pytest.mark.parametrize("base", [100.0, 10.0])
def test_each_triple_is_rotated_by_the_row_and_then_by_the_column(width, base):
    encoding = build(f"rope_spherical(base={base})", width=width)
    q, k = queries_and_keys(width=width)
    found = encoding.rotate(q, k, Positions.from_grid(GRID), 1)
    for x, rotated in zip((q, k), found, strict=True):
        for n, (row, column) in enumerate(CELLS):
            for t in range(width // 3):
                speed = base ** (-2 * t / width)
                matrix = about_third(speed * column) @ about_first(speed * row)
                triple = slice(3 * t, 3 * t + 3)
                torch.testing.assert_close(rotated[:, :, n, triple], x[:, :, n, triple] @ matrix.mT, atol=1e-6, rtol=0)
        assert torch.equal(rotated[..., width // 3 * 3 :], x[..., width // 3 * 3 :])


def test_logits_depend_on_more_than_the_offset():
    encoding, pos = build("rope_spherical"), Positions.from_grid(GRID)
    q, k = queries_and_keys()
    here, there = (attention_logits(q, k, encoding, p, 0) for p in (pos, pos.shift((2.0, 1.0))))
    assert (here - there).abs().max() > 0.1
    torch.testing.assert_close(here.diagonal(dim1=-2, dim2=-1), there.diagonal(dim1=-2, dim2=-1))


def test_a_width_below_three_is_refused():
    with pytest.raises(ValueError, match="3 channels or more, not 2"):
        ENCODINGS.build("rope_spherical", Geometry(4, 2, 1, GRID))

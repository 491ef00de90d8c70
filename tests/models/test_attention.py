"""The attention function that all models share."""

import pytest
import torch

from vitpos.encodings import ENCODINGS
from vitpos.encodings.base import Geometry
from vitpos.models.attention import SelfAttention
from vitpos.positions import Positions

WINDOW = (2, 3)


@pytest.mark.parametrize("spec", list(ENCODINGS))
def test_a_masked_token_has_no_effect_on_the_others(spec):
    torch.manual_seed(0)
    encoding = ENCODINGS.build(spec, Geometry(64, 4, 2, WINDOW)).eval().double()
    attention, x = SelfAttention(64, 4).double(), torch.randn(4, 6, 64, dtype=torch.float64)
    mask = torch.zeros(2, 1, 6, 6, dtype=torch.float64)
    mask[1, :, :4, 4:] = mask[1, :, 4:, :4] = -torch.inf  # in every second window the last two tokens are apart
    pos = Positions.from_grid(WINDOW)
    changed = x.clone()
    changed[1::2, 4:] += 1
    before, after = (attention(each, encoding, pos, 1, mask) for each in (x, changed))
    if "content_dependent" not in encoding.traits:
        assert torch.allclose(before[1::2, :4], after[1::2, :4], atol=1e-12)
    assert torch.equal(before[::2], after[::2]) and not torch.allclose(before[1::2, 4:], after[1::2, 4:])

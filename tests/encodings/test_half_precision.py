"""Half precision: every encoding is as close to float32 as attention and embedding without positions are."""

from copy import deepcopy
from functools import cache

import pytest
import torch
from torch import nn

from vitpos import ENCODINGS, Geometry, Positions, build_encoding
from vitpos.models.attention import attend
from vitpos.models.token_embedding import embed

GEOMETRY = Geometry(64, 2, 2, (12, 20), 1)  # a grid so large that rounded coordinates and counts would show
OPTIONS = ("comrope(block_size=4)", "rope(prefix_mode='learned')", "fourier(learnable=False)", "sape2(per_axis=False)")
ROUNDING = {torch.bfloat16: 2**-8, torch.float16: 2**-11}


def outputs(encoding, dtype, autocast):
    """The attention output and the vectors added at the input: with weights of this dtype, or under autocast."""
    generator = torch.Generator().manual_seed(1)
    encoding = deepcopy(encoding).eval()
    encoding = encoding if autocast else encoding.to(dtype)
    q, k, v = (torch.randn(2, 2, 241, 32, generator=generator).to(dtype) for _ in range(3))
    zeros = torch.zeros(2, 240, 64, dtype=torch.float32 if autocast else dtype)
    pos = Positions.from_grid(GEOMETRY.grid)
    with (
        torch.no_grad(),
        torch.autocast("cpu", dtype=torch.bfloat16 if dtype == torch.float32 else dtype, enabled=autocast),
    ):
        y, _ = attend(q, k, v, encoding, pos, 0, q.transpose(1, 2).flatten(2))
        return y.float(), embed(encoding, zeros, pos, 0).float()


def errors(name, dtype, autocast):
    """The relative errors of the attention output and of the added vectors, compared with float32."""
    torch.manual_seed(0)
    encoding = build_encoding(name, GEOMETRY)
    for parameter in encoding.parameters():
        if not parameter.any():
            nn.init.normal_(parameter, std=0.3)
    pairs = zip(outputs(encoding, dtype, autocast), outputs(encoding, torch.float32, False), strict=True)
    return [float((found - exact).norm() / exact.norm().clamp_min(1e-9)) for found, exact in pairs]


@cache
def of_none(dtype, autocast):
    return errors("none", dtype, autocast)[0]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", [*ENCODINGS, *OPTIONS])
def test_half_precision_is_as_close_to_float32_as_without_positions(name, dtype):
    for autocast in (True, False):
        attended, added = errors(name, dtype, autocast)
        assert attended < 4 * of_none(dtype, autocast)
        assert added < 3 * ROUNDING[dtype]

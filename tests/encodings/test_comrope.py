"""ComRoPE is the exponential of its generators, with CLS at the center of the image."""

import math

import pytest
import torch

from tests.encodings.inputs import CELLS, GRID, HEADS, WIDTH, N, build, queries_and_keys
from vitpos.encodings import ENCODINGS
from vitpos.encodings.base import Geometry
from vitpos.models.attention import attention_logits
from vitpos.positions import Positions


def rotation_matrix(encoding, mode, block, layer, head, position):
    """R = exp(Σ_axis position·A_axis), written out for a whole head; A of P − Pᵀ."""
    generator = torch.zeros(WIDTH, WIDTH, dtype=torch.float64)
    for j in range(WIDTH // block):
        values = iter(encoding.generators[layer, head, j].tolist())
        scales = [float(j % 2 == axis) for axis in (0, 1)]
        if mode == "ld":
            scales = encoding.axis_scales[layer, :, j].tolist()
        scale = sum(scale * at for scale, at in zip(scales, position, strict=True))
        for row in range(block):
            for column in range(row + 1, block):
                value = next(values) * scale
                generator[j * block + row, j * block + column] = value
                generator[j * block + column, j * block + row] = -value
    return torch.matrix_exp(generator)


@pytest.mark.parametrize("block", [2, 4, 8])
@pytest.mark.parametrize("mode", ["ld", "ap"])
def test_logits_are_those_of_the_published_positions(mode, block):
    encoding = build(f"comrope(mode='{mode}', block_size={block})", num_prefix=1, scale=1.0)
    q, k = queries_and_keys(N + 1)
    logits = attention_logits(q, k, encoding, Positions.from_grid(GRID), 1)
    positions = [(0.5, 0.5), *(((row + 0.5) / GRID[0], (column + 0.5) / GRID[1]) for row, column in CELLS)]
    for head in range(HEADS):
        matrices = torch.stack([rotation_matrix(encoding, mode, block, 1, head, p) for p in positions])
        a, b = (torch.einsum("nij,bnj->bni", matrices, x[:, head]) for x in (q, k))
        torch.testing.assert_close(logits[:, head], a @ b.mT / 4, atol=1e-6, rtol=0)


def test_it_starts_as_the_difference_of_two_normal_matrices():
    torch.manual_seed(0)
    geometry = Geometry(384, 6, 12, GRID)
    learned = ENCODINGS.build("comrope", geometry)
    assert learned.generators.std().item() == pytest.approx(math.sqrt(2), rel=0.05)
    assert learned.axis_scales.std().item() == pytest.approx(1, rel=0.05)
    assert [name for name, _ in ENCODINGS.build("comrope(mode='ap')", geometry).named_parameters()] == ["generators"]


@pytest.mark.parametrize(
    ("options", "message"),
    [("block_size=3", "a divisor of the width"), ("mode='ap', block_size=16", "a divisor of half of the width")],
)
def test_blocks_that_do_not_fit_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        build(f"comrope({options})")

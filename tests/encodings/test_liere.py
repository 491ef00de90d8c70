"""LieRE is the exponential of its generators."""

import pytest
import torch

from tests.encodings.inputs import CELLS, GRID, build, queries_and_keys
from vitpos.positions import Positions


@pytest.mark.parametrize("block", [2, 4, 16])
def test_liere_is_the_exponential_of_its_generators(block):
    encoding = build(f"liere(block_size={block})")
    q, _ = queries_and_keys(batch=1)
    ours = encoding.rotate(q, q, Positions.from_grid(GRID), 1)[0]
    for head in range(2):
        for n, (row, column) in enumerate(CELLS):
            rotated = []
            for group in range(16 // block):
                skew = torch.zeros(block, block, dtype=torch.float64)
                entry = 0
                for a in range(block):
                    for b in range(a + 1, block):
                        by_row, by_column = encoding.generators[1, head, group, :, entry].tolist()
                        value = by_row * row / (GRID[0] - 1) + by_column * column / (GRID[1] - 1)
                        skew[a, b], skew[b, a] = value, -value
                        entry += 1
                power, total = torch.eye(block, dtype=torch.float64), torch.eye(block, dtype=torch.float64)
                for term in range(1, 60):
                    power = power @ skew / term
                    total = total + power
                rotated.append(total @ q[0, head, n, group * block : (group + 1) * block])
            assert (ours[0, head, n] - torch.cat(rotated)).abs().max() < 1e-6


def test_liere_of_blocks_of_two_is_mixed_rope():
    liere, mixed = build("liere(block_size=2)"), build("rope_mixed")
    with torch.no_grad():  # a generator rotates (a, b) to (a cos + b sin, …): the other way round, per training span
        spans = torch.tensor([GRID[0] - 1, GRID[1] - 1], dtype=torch.float64)
        mixed.mixed_frequencies.copy_(-(liere.generators[..., 0] / spans).permute(0, 1, 3, 2))
    q, _ = queries_and_keys()
    for layer in range(2):
        ours = [e.rotate(q, q, Positions.from_grid(GRID), layer)[0] for e in (liere, mixed)]
        assert torch.allclose(*ours, atol=1e-9)

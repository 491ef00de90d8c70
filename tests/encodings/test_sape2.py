"""SaPE2 is its equations; which permutations it is equivariant to."""

import pytest
import torch

from tests.encodings.inputs import CELLS, GRID, N, build, interpolate, queries_and_keys
from vitpos.encodings import ENCODINGS
from vitpos.encodings.base import Geometry
from vitpos.positions import Positions

GEOMETRY = Geometry(dim=16, heads=2, depth=2, grid=(3, 5))


def test_sape2_without_gates_does_not_depend_on_positions():
    encoding = ENCODINGS.build("sape2(gates=False)", GEOMETRY)
    q, k = torch.randn(2, 1, 2, 15, 8)
    order = torch.randperm(15)
    pos = Positions.from_grid((3, 5))
    bias = encoding.bias(q, k, pos, 0)
    moved = encoding.bias(q[:, :, order], k[:, :, order], pos, 0)
    assert torch.allclose(moved, bias[:, :, order][..., order], atol=1e-6)


@pytest.mark.parametrize("mode", ["key", "query"])
@pytest.mark.parametrize("rest", ["", ", max_positions=3", ", scale_gates=False", ", scale_bias=False", ", sign=-1"])
def test_sape2_is_its_equations(mode, rest):
    encoding = build(f"sape2(mode='{mode}'{rest})")
    q, k = queries_and_keys(batch=1, heads=1)
    bias = encoding.bias(q, k, Positions.from_grid(GRID), 1)[0, 0]
    scale = 1.0 if "scale_gates" in rest else 0.25
    gates = torch.sigmoid(q[0, 0] @ k[0, 0].mT * scale)
    dotted = (k if mode == "key" else q)[0, 0]
    vectors = []
    for axis in (1, 0):  # along the row (columns counted), then along the column
        table = encoding.tables[0 if axis == 1 else 1][1]
        rows = []
        for i, here in enumerate(CELLS):
            line = [j for j, other in enumerate(CELLS) if other[1 - axis] == here[1 - axis]]
            z = []
            for m in range(GRID[axis]):
                count = sum(gates[i, j].item() for j in line if CELLS[j][axis] >= m)
                z.append(dotted[i] @ interpolate(table, count))
            rows.append(torch.stack(z))
        vectors.append(torch.stack(rows))
    factor = (-1 if "sign" in rest else 1) * (1 if "scale_bias" in rest else 0.25)
    for i in range(N):
        for n in range(N):
            expected = factor * sum((v[i] - v[n]).square().sum().sqrt() for v in vectors)
            assert abs(bias[i, n] - expected) < 1e-6


def test_sape2_without_axes_counts_along_the_row_major_order():
    encoding = build("sape2(per_axis=False)")
    q, k = queries_and_keys(batch=1, heads=1)
    bias = encoding.bias(q, k, Positions.from_grid(GRID), 1)[0, 0]
    gates = torch.sigmoid(q[0, 0] @ k[0, 0].mT * 0.25)
    z = torch.stack(
        [
            torch.stack([k[0, 0, i] @ interpolate(encoding.tables[0][1], gates[i, m:].sum().item()) for m in range(N)])
            for i in range(N)
        ]
    )
    expected = torch.stack([torch.stack([(z[i] - z[n]).square().sum().sqrt() for n in range(N)]) for i in range(N)])
    assert (bias - 0.25 * expected).abs().max() < 1e-6


def sape2_part(axis):
    """SaPE2 with one of its two parts silent: its table zero, so that all its distances are."""
    encoding = build("sape2")
    with torch.no_grad():
        encoding.tables[1 - axis].zero_()
    return encoding


def moved(q, k, order):
    return q[:, :, order], k[:, :, order]


@pytest.mark.parametrize("axis", [0, 1])
def test_sape2_along_one_axis_is_equivariant_to_any_order_across_it(axis):
    encoding, (q, k), pos = sape2_part(axis), queries_and_keys(), Positions.from_grid(GRID)
    cells = torch.arange(N).view(GRID)
    order = (cells[torch.randperm(GRID[0])] if axis == 0 else cells[:, torch.randperm(GRID[1])]).flatten()
    bias = encoding.bias(q, k, pos, 0)
    assert torch.allclose(encoding.bias(*moved(q, k, order), pos, 0), bias[:, :, order][..., order])


@pytest.mark.parametrize("axis", [0, 1])
def test_sape2_along_an_axis_is_not_equivariant_to_a_shift_along_it(axis):
    encoding, (q, k), pos = sape2_part(axis), queries_and_keys(), Positions.from_grid(GRID)
    cells = torch.arange(N).view(GRID)
    order = cells.roll(2, 1 - axis).flatten()
    bias = encoding.bias(q, k, pos, 0)[:, :, order][..., order]
    error = (encoding.bias(*moved(q, k, order), pos, 0) - bias).norm() / bias.norm()
    assert error > 0.05


@pytest.mark.parametrize("factor", [100.0, 500.0])
def test_sape2_in_float32_does_not_depend_on_the_other_images_of_a_batch(factor):
    encoding = build("sape2").float()
    q, k = torch.randn(2, 3, 2, N, 16, generator=torch.Generator().manual_seed(0))
    wild = k.clone()
    wild[2, :, 4] *= factor
    pos = Positions.from_grid(GRID)
    for hook in (encoding.bias, encoding.fused_logits):
        assert torch.allclose(hook(q, k, pos, 0)[:2], hook(q, wild, pos, 0)[:2], atol=1e-5)
    half = encoding.bfloat16().bias(q.bfloat16(), k.bfloat16(), pos, 0).float()
    full = encoding.float().bias(q.bfloat16().float(), k.bfloat16().float(), pos, 0)
    assert (half - full).abs().max() < 0.1 * full.max()


def test_the_bias_of_a_token_with_itself_is_zero():
    bias = build("sape2").bias(*queries_and_keys(), Positions.from_grid(GRID), 0)
    assert (bias.diagonal(dim1=2, dim2=3) == 0).all()

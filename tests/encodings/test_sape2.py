"""SaPE2 is its equations; which permutations it is equivariant to."""

import pytest
import torch

from tests.encodings.inputs import CELLS, GRID, N, build, interpolate, queries_and_keys
from vitpos.encodings import ENCODINGS
from vitpos.encodings.base import Geometry
from vitpos.errors import InputError
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


def expected_bias(encoding, q, k, layer, *, dotted, scale, axes, factor, gates):
    """The bias (N, N) of one image and head by loops over the equations; ``axes``: 1 along rows, 0 along columns."""
    weight = torch.sigmoid(q @ k.mT * scale) if gates else torch.ones(N, N)
    expected = torch.zeros(N, N, dtype=q.dtype)
    for axis, table in zip(axes, encoding.tables, strict=True):
        vectors = []
        for i, here in enumerate(CELLS):
            line = [j for j, other in enumerate(CELLS) if other[1 - axis] == here[1 - axis]]
            z = []
            for m in range(GRID[axis]):
                count = sum(weight[i, j].item() for j in line if CELLS[j][axis] >= m)
                z.append(dotted[i] @ interpolate(table[layer], count))
            vectors.append(torch.stack(z))
        for i in range(N):
            for n in range(N):
                expected[i, n] += factor * (vectors[i] - vectors[n]).square().sum().sqrt()
    return expected


@pytest.mark.parametrize("mode", ["key", "query"])
@pytest.mark.parametrize(
    "rest",
    [
        "",
        ", max_positions=3",
        ", scale_gates=False",
        ", scale_bias=False",
        ", sign=-1",
        ", gates=False",
        ", axes='rows'",
        ", axes='columns'",
        ", axes='columns', gates=False, sign=-1",
    ],
)
def test_sape2_is_its_equations(mode, rest):
    encoding = build(f"sape2(mode='{mode}'{rest})")
    q, k = queries_and_keys(batch=1, heads=1)
    bias = encoding.bias(q, k, Positions.from_grid(GRID), 1)[0, 0]
    expected = expected_bias(
        encoding,
        q[0, 0],
        k[0, 0],
        1,
        dotted=(k if mode == "key" else q)[0, 0],
        scale=1.0 if "scale_gates" in rest else 0.25,
        axes=(1,) if "rows" in rest else (0,) if "columns" in rest else (1, 0),
        factor=(-1 if "sign" in rest else 1) * (1 if "scale_bias" in rest else 0.25),
        gates="gates=False" not in rest or "scale_gates" in rest,
    )
    assert (bias - expected).abs().max() < 1e-6


def test_the_biases_of_rows_and_of_columns_add_up_to_that_of_both():
    q, k = queries_and_keys()
    both, rows, columns = (build(f"sape2(axes='{axes}')") for axes in ("both", "rows", "columns"))
    with torch.no_grad():
        rows.tables[0].copy_(both.tables[0])
        columns.tables[0].copy_(both.tables[1])
    pos = Positions.from_grid(GRID)
    parts = rows.bias(q, k, pos, 0) + columns.bias(q, k, pos, 0)
    assert torch.allclose(parts, both.bias(q, k, pos, 0)) and rows.bias(q, k, pos, 0).any()
    single = rows.counts(q, k, pos, 0) + columns.counts(q, k, pos, 0)
    for one, other in zip(single, both.counts(q, k, pos, 0), strict=True):
        assert all(torch.equal(a.nan_to_num(-1), b.nan_to_num(-1)) for a, b in zip(one, other, strict=True))


def test_one_axis_of_a_count_over_all_patches_is_refused():
    with pytest.raises(InputError, match="per_axis=False with axes='rows'; leave out one of the two"):
        build("sape2(per_axis=False, axes='rows')")


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


AXES = ("rows", "columns")


def moved(q, k, order):
    return q[:, :, order], k[:, :, order]


@pytest.mark.parametrize("axis", [0, 1])
def test_sape2_along_one_axis_is_equivariant_to_any_order_across_it(axis):
    encoding, (q, k), pos = build(f"sape2(axes='{AXES[axis]}')"), queries_and_keys(), Positions.from_grid(GRID)
    cells = torch.arange(N).view(GRID)
    order = (cells[torch.randperm(GRID[0])] if axis == 0 else cells[:, torch.randperm(GRID[1])]).flatten()
    bias = encoding.bias(q, k, pos, 0)
    assert torch.allclose(encoding.bias(*moved(q, k, order), pos, 0), bias[:, :, order][..., order])


@pytest.mark.parametrize("axis", [0, 1])
def test_sape2_along_an_axis_is_not_equivariant_to_a_shift_along_it(axis):
    encoding, (q, k), pos = build(f"sape2(axes='{AXES[axis]}')"), queries_and_keys(), Positions.from_grid(GRID)
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

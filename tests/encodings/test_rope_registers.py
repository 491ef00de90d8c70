"""Registers with a grid of their own are rotated as in ViT-5."""

import pytest
import torch

from tests.encodings.builders import DIM, HEADS, WIDTH, attention_call, build, positions, random
from vitpos.encodings import ENCODINGS
from vitpos.encodings.base import Geometry
from vitpos.errors import InputError
from vitpos.models import MODELS
from vitpos.models.attention import SelfAttention
from vitpos.testing import check_encoding

GRID, PREFIX = (2, 3), 7  # CLS and six registers
GEOMETRY = Geometry(DIM, HEADS, 2, (3, 5), num_prefix=PREFIX)
CELLS = [(row, column) for row in range(GRID[0]) for column in range(GRID[1])]


def rotated(x, at, base):
    """The vision rotary embedding of ViT-5, x (d,) at (row, column): half the channels by column, half by row.

    Its code rotates by rows first; with the halves of q and k exchanged that is the same product.
    """
    quarter = WIDTH // 4
    out = x.clone()
    for half, value in enumerate((at[1], at[0])):
        for t in range(quarter):
            angle = torch.tensor(value * base ** (-2 * t / (WIDTH // 2)), dtype=torch.float64)
            a, b = x[2 * (half * quarter + t)], x[2 * (half * quarter + t) + 1]
            out[2 * (half * quarter + t)] = a * angle.cos() - b * angle.sin()
            out[2 * (half * quarter + t) + 1] = b * angle.cos() + a * angle.sin()
    return out


@pytest.mark.parametrize("kind", ["whole", "hidden", "finer"])
@pytest.mark.parametrize(("base", "register_base"), [(10_000.0, 100.0), (100.0, 7.0)])
def test_patches_registers_and_cls_are_rotated_as_in_vit5(base, register_base, kind):
    torch.manual_seed(2)
    encoding = build(f"rope(base={base}, register_grid={GRID}, register_base={register_base})", GEOMETRY)
    attention, pos = SelfAttention(DIM, HEADS).double(), positions(kind)
    x = random(1, PREFIX + pos.index.shape[1], DIM)
    q, k, _ = attention.qkv_heads(x)
    at = [((0.0, 0.0), 1.0), *((cell, register_base) for cell in CELLS), *((c, base) for c in pos.coords[0].tolist())]
    known = [True] * PREFIX + pos.known[0].tolist()
    ours = attention_call(attention, x, encoding, pos, 1).logits()[0]
    for head in range(HEADS):
        turned = [[rotated(row, *where) for row, where in zip(y[0, head], at, strict=True)] for y in (q, k)]
        for i in range(len(at)):
            for j in range(len(at)):
                a, b = (turned[0][i], turned[1][j]) if known[i] and known[j] else (q[0, head, i], k[0, head, j])
                assert abs(ours[head, i, j] - a @ b * WIDTH**-0.5) < 1e-6


def test_without_a_grid_prefix_tokens_are_not_rotated():
    assert (
        "rotate_prefix" not in build("rope").hooks
        and "rotate_prefix" in build(f"rope(register_grid={GRID})", GEOMETRY).hooks
    )


def test_vit5_is_a_sum_in_a_model_with_registers():
    spec = "learned + rope(base=10000.0, register_grid=(2, 2))"
    model = MODELS.build("vit(patch=2, dim=32, depth=2, heads=2, registers=4)", (1, 6, 10), 3, spec)
    assert model(torch.randn(2, 1, 6, 10)).isfinite().all()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # torch's own, while it traces
def test_the_option_keeps_the_contract_and_can_be_exported():
    check_encoding("rope(register_grid=(2, 1))", export=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("register_grid=(2, 4)", "7 CLS and register tokens"),
        ("register_grid=(0, 2)", "choose rows and columns"),
        ("register_grid=(2, 2), prefix_mode='unrotated'", "leave one of them out"),
        ("register_grid=(2, 2), register_base=0.0", "register_base=0.0"),
    ],
)
def test_grids_that_do_not_fit_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        ENCODINGS.build(f"rope({options})", GEOMETRY)

"""Cayley-STRING: its basis is torch's Cayley transform, and among patches it is RoPE-Mixed with other projections."""

import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import orthogonal

from tests.encodings.inputs import CELLS, GRID, HEADS, WIDTH, N, build, queries_and_keys
from vitpos.encodings import ENCODINGS
from vitpos.encodings._rotary import skew_matrices
from vitpos.encodings.base import Geometry
from vitpos.models.attention import attention_logits
from vitpos.positions import Positions


def test_the_basis_is_the_cayley_transform_of_torch():
    encoding = build("string")
    skew = skew_matrices(encoding.generators[1], WIDTH).detach()
    for head in range(HEADS):
        identity = torch.eye(WIDTH, dtype=torch.float64)
        by_hand = (identity - skew[head]) @ torch.linalg.inv(identity + skew[head])
        basis = encoding.basis(1, torch.float64)[head].detach()
        torch.testing.assert_close(basis, by_hand, atol=1e-10, rtol=0)
        torch.testing.assert_close(basis @ basis.mT, identity, atol=1e-10, rtol=0)
        theirs = orthogonal(nn.Linear(WIDTH, WIDTH, bias=False).double(), orthogonal_map="cayley")
        with torch.no_grad():  # torch: (I + X/2)(I − X/2)⁻¹ with X the lower triangle minus its transpose, times a sign
            theirs.parametrizations.weight.original.copy_(-2 * skew[head])
            theirs.parametrizations.weight[0].base.copy_(identity)
        torch.testing.assert_close(basis, theirs.weight.detach(), atol=1e-10, rtol=0)


def test_logits_are_those_of_the_formula():
    encoding = build("string")
    q, k = queries_and_keys()
    logits = attention_logits(q, k, encoding, Positions.from_grid(GRID), 0)
    for head in range(HEADS):
        basis, frequencies = encoding.basis(0, torch.float64)[head], encoding.mixed_frequencies[0, head]
        rotated = torch.empty(2, *q[:, head].shape, dtype=torch.float64)
        for n, (row, column) in enumerate(CELLS):
            planes = [row * frequencies[0, t] + column * frequencies[1, t] for t in range(WIDTH // 2)]
            blocks = [torch.stack([a.cos(), -a.sin(), a.sin(), a.cos()]).view(2, 2) for a in planes]
            rotation = torch.block_diag(*blocks) @ basis
            for which, x in enumerate((q, k)):
                rotated[which, :, n] = x[:, head, n] @ rotation.mT
        torch.testing.assert_close(logits[:, head], rotated[0] @ rotated[1].mT / 4, atol=1e-6, rtol=0)


def test_among_patches_the_basis_can_be_absorbed_into_the_projections():
    encoding, mixed, pos = build("string"), build("rope_mixed"), Positions.from_grid(GRID)
    mixed.load_state_dict(encoding.state_dict(), strict=False)
    basis = encoding.basis(1, torch.float64)
    q, k = queries_and_keys()
    absorbed = attention_logits(q @ basis.mT, k @ basis.mT, mixed, pos, 1)
    torch.testing.assert_close(attention_logits(q, k, encoding, pos, 1), absorbed)


@pytest.mark.parametrize("mode", ["origin", "center", "unrotated", "learned"])
def test_with_prefix_tokens_too_if_they_are_multiplied_as_well(mode):
    encoding = build(f"string(prefix_mode='{mode}')", num_prefix=1)
    mixed = build(f"rope_mixed(prefix_mode='{mode}')", num_prefix=1)
    mixed.load_state_dict(encoding.state_dict(), strict=False)
    basis, pos = encoding.basis(1, torch.float64), Positions.from_grid(GRID)
    q, k = queries_and_keys(N + 1)
    absorbed = attention_logits(q @ basis.mT, k @ basis.mT, mixed, pos, 1)
    torch.testing.assert_close(attention_logits(q, k, encoding, pos, 1), absorbed)


def test_it_starts_as_rope_mixed():
    q, k = queries_and_keys(dtype=torch.float32)
    rotated = []
    for spec in ("string", "rope_mixed"):
        torch.manual_seed(3)
        encoding = ENCODINGS.build(spec, Geometry(HEADS * WIDTH, HEADS, 2, GRID))
        rotated.append(encoding.rotate(q, k, Positions.from_grid(GRID), 1))
    torch.testing.assert_close(*rotated)

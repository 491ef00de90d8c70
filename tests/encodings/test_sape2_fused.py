"""The fused logits of SaPE2 and their gradients are those of the plain form."""

import pytest
import torch

from tests.encodings.contract import (
    GRID,
    OPTIONS,
    N,
    model_of,
    same,
)
from vitpos.encodings._sape2_fused import AddDistances
from vitpos.encodings.base import pad_prefix
from vitpos.models.attention import attention_inputs
from vitpos.positions import Positions


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equal_vectors_are_at_distance_zero_with_gradients_of_zero_once_and_twice(dtype):
    z = torch.randn(1, 5, 4, dtype=dtype)
    z[:, 3] = z[:, 1]
    z.requires_grad_()
    total = AddDistances.apply(z.new_zeros(1, 5, 5), 1.0, z)
    assert total[0, 1, 3] == 0 and (total.diagonal(dim1=1, dim2=2) == 0).all()
    (gradient,) = torch.autograd.grad(total.square().sum() + total.sum(), z, create_graph=True)
    (second,) = torch.autograd.grad(gradient.square().sum(), z)
    assert gradient.isfinite().all() and second.isfinite().all()
    (pair,) = torch.autograd.grad(AddDistances.apply(z.new_zeros(1, 5, 5), 1.0, z)[0, 1, 3], z)
    assert not pair.any()


def test_distances_agree_with_cdist_and_their_gradients_with_differences():
    a, b = torch.randn(2, 3, 6, 4, dtype=torch.float64, requires_grad=True).unbind()
    expected = 0.5 * (torch.cdist(a, a) + torch.cdist(b, b))

    def distances(x, y):
        return AddDistances.apply(x.new_zeros(*x.shape[:2], x.shape[1]), 0.5, x, y)

    assert torch.allclose(distances(a, b), expected, atol=1e-6)
    x, y = (t.detach()[:1].clone().requires_grad_() for t in (a, b))

    def apart(x, y):
        return distances(x, y).triu(1)

    assert torch.autograd.gradcheck(apart, (x, y))
    assert torch.autograd.gradgradcheck(apart, (x, y))


@pytest.mark.parametrize("spec", [*(spec for spec in OPTIONS if spec.startswith("sape2")), "sape2", "learned + sape2"])
def test_fused_logits_and_their_gradients_equal_products_plus_bias(spec):
    model, pos = model_of(spec), Positions.from_grid(GRID)
    for prefix in (0, 2):
        q, k = torch.randn(2, 3, 2, N + prefix, 16, dtype=torch.float64, requires_grad=True).unbind()
        logits = attention_inputs(q, k, model.encoding, pos, 0).logits
        assert logits is not None
        expected = q @ k.mT * 0.25 + pad_prefix(model.encoding.bias(q, k, pos, 0), N + prefix)
        assert same(logits, expected)
        weight, inputs = torch.randn_like(expected), (q, k, *model.encoding.parameters())
        found, wanted = (torch.autograd.grad((x * weight).sum(), inputs, allow_unused=True) for x in (logits, expected))
        assert all(a is b is None or same(a, b) for a, b in zip(found, wanted, strict=True))


def test_a_grid_of_another_size_has_fused_logits_equal_to_those_of_its_tokens_in_another_order():
    model, pos, order = model_of("sape2"), Positions.from_grid((4, 6), train_grid=GRID), torch.randperm(24)
    q, k = torch.randn(2, 3, 2, 24, 16, dtype=torch.float64).unbind()
    fused = model.encoding.fused_logits(q, k, pos, 0)
    plain = q @ k.mT * 0.25
    plain[:, :, order[:, None], order] += model.encoding.bias(q[:, :, order], k[:, :, order], pos.permute(order), 0)
    assert same(fused, plain)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equal_vectors_have_a_distance_of_zero_and_finite_gradients(dtype):
    z, scores = (
        torch.ones(2, 4, 3, dtype=dtype, requires_grad=True),
        torch.randn(2, 5, 5, dtype=dtype, requires_grad=True),
    )
    added = AddDistances.apply(scores.clone(), 2.0, z)
    torch.testing.assert_close(added, scores)
    added.sum().backward()
    assert torch.equal(z.grad, torch.zeros_like(z))

"""Projections on principal directions agree with a full decomposition, with their gradients."""

import pytest
import torch

from vitpos.encodings._pca import project_on_principal_directions


@pytest.mark.parametrize("shape", [(7, 12), (40, 5), (3, 3)])
@pytest.mark.parametrize("hidden", [0, 2])
def test_principal_directions_and_their_gradients_equal_those_of_a_full_decomposition(shape, hidden):
    hidden = min(hidden, shape[0] - 3)
    vectors = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    known = torch.arange(shape[0]) >= hidden
    weights = torch.randn(shape[0], 2, dtype=torch.float64)
    ours = project_on_principal_directions(vectors[None], known[None])[0]
    main = torch.linalg.svd(vectors[known] - vectors[known].mean(0), full_matrices=False)[2][:2].mT
    theirs = vectors @ (main * ((vectors @ main) * ours).sum(0).sign().detach())  # which way they point is left open
    assert torch.allclose(ours, theirs, atol=1e-8)
    gradients = [torch.autograd.grad((weights * found).sum(), vectors)[0] for found in (ours, theirs)]
    assert torch.allclose(*gradients, atol=1e-6 * gradients[1].abs().max().item())


def test_without_principal_directions_projections_are_zero_and_gradients_finite():
    vectors = torch.zeros(1, 6, 4, requires_grad=True)
    for known in (torch.ones(1, 6), torch.zeros(1, 6)):
        found = project_on_principal_directions(vectors, known.bool())
        assert not found.any() and torch.autograd.grad(found.sum(), vectors)[0].isfinite().all()
    line = (torch.arange(6.0)[:, None] * torch.ones(4))[None].requires_grad_()  # one direction only
    found = project_on_principal_directions(line, torch.ones(1, 6).bool())
    assert found.isfinite().all() and torch.autograd.grad(found.sum(), line)[0].isfinite().all()

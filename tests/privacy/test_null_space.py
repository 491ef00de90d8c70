from dataclasses import replace

import torch

from tests.evaluate import evaluate
from tests.privacy.models import GRID, PATCH, build_model, closed_form_numbers, random_data, shared_gradients
from vitpos.data.dataset import Split
from vitpos.patches import patchify
from vitpos.positions import Positions
from vitpos.privacy.client import to_precision
from vitpos.privacy.closed_form import attacker_view, invert_gradient, separable_system
from vitpos.privacy.null_space import null_space_basis, smooth_in_null_space


def test_outside_the_null_space_the_reconstruction_is_exact():
    model = to_precision(build_model("learned + mjp"))
    for shared in shared_gradients(model, random_data(), 3, "find_shuffled", 0.5):
        gradients, pos = attacker_view(model, shared, "null_space")
        basis = null_space_basis(separable_system(model, gradients, pos), gradients["project.weight"], 1e-16)
        assert len(basis) == (~pos.known).sum().item() - 1 > 1
        found = invert_gradient(model, shared, "null_space").image
        pixels, found_pixels = (patchify(x, PATCH)[0] for x in (shared.image, found))
        differences = pixels[~pos.known[0]] - pixels[~pos.known[0]].mean(0)  # between hidden patches
        assert torch.allclose(differences @ basis.mT @ basis, differences, atol=1e-7)
        error = found_pixels - pixels
        assert (error - error @ basis.mT @ basis).abs().max() < 1e-7 < 0.1 < error.abs().max()


def test_the_null_space_attacker_gains_over_one_that_knows_the_mask():
    ours, theirs = (closed_form_numbers(attacker, mask_ratio=0.5) for attacker in ("null_space", "knows_mask"))
    assert 0.9 < ours["exact_fraction"] < 1 and ours["psnr"] > theirs["psnr"] + 1
    assert ours["psnr_visible"] > theirs["psnr_visible"] + 5


def test_smoothing_changes_the_null_space_alone_and_improves_a_smooth_image():
    rows, columns = torch.meshgrid(torch.linspace(0, 1, 12), torch.linspace(0, 1, 20), indexing="ij")
    smooth = (rows + columns).expand(1, 3, -1, -1).double()
    patches = patchify(smooth, PATCH)[0]
    basis = torch.linalg.qr(torch.randn(60, 20, generator=torch.Generator().manual_seed(0)).double())[0].mT
    known = patches - patches @ basis.mT @ basis
    found = smooth_in_null_space(known, basis, Positions.from_grid(GRID), PATCH)
    assert torch.allclose(found - found @ basis.mT @ basis, known, atol=1e-9)
    assert (found - patches).norm() < 0.5 * (known - patches).norm()


def test_the_original_image_is_smooth_across_the_borders_of_hidden_patches():
    data = random_data()
    wave = torch.linspace(0, 3, data.shape[1])[:, None] + torch.linspace(0, 2, data.shape[2])
    smooth = (127 + 120 * wave.sin())[None, None].expand(3, data.shape[0], -1, -1).to(torch.uint8)
    data = replace(data, test=Split(smooth, data.test.labels))
    spec = "closed_form(images=3, scenario='{}', mask_ratio=0.5, attacker='null_space')"
    shuffled, original = (
        evaluate(spec.format(scenario), build_model("learned + mjp"), data).numbers["psnr"]
        for scenario in ("find_shuffled", "find_original")
    )
    assert original > shuffled + 1

import pytest
import torch
import torch.nn.functional as F

from tests.evaluate import evaluate
from tests.privacy.models import (
    ADDS_NONE,
    ADDS_TRAINED_VECTORS,
    GRID,
    IMAGE,
    build_model,
    closed_form_numbers,
    random_data,
)
from vitpos.positions import Positions
from vitpos.privacy.client import client_gradient, to_precision
from vitpos.privacy.linear_system import subtract_penalty, token_gradient_system


def true_token_gradients(model, image, label, positions=None):
    """Returns the gradients (N, D) at the patch tokens, by autograd."""
    kept = []
    own = model.patch_tokens

    def patch_tokens(images):
        tokens = own(images)
        tokens.retain_grad()
        kept.append(tokens)
        return tokens

    model.patch_tokens = patch_tokens
    logits, penalty = model.forward_with_penalty(image, positions)
    (F.cross_entropy(logits, label) + penalty).backward()
    del model.patch_tokens
    return kept[0].grad[0]


@pytest.mark.parametrize("hidden", [False, True])
@pytest.mark.parametrize(
    "encoding",
    [
        *ADDS_TRAINED_VECTORS,
        *ADDS_NONE,
        "factorized",
        "coordinate_mlp",
        "learned + mjp(slot_index=True, localization='linear')",
    ],
)
def test_true_token_gradients_solve_the_system(encoding, hidden):
    model = to_precision(build_model(encoding))
    with torch.no_grad():
        for parameter in model.encoding.parameters():
            parameter.normal_()
    image, label = torch.randn(1, *IMAGE, dtype=torch.float64), torch.tensor([3])
    pos = Positions.from_grid(GRID)
    if hidden:
        pos = pos.hide((torch.arange(12) % 5 == 1)[None])
    gradients = subtract_penalty(model, client_gradient(model, image, label, pos), pos)
    system = token_gradient_system(model, gradients, pos)
    true = true_token_gradients(model, image, label, pos)
    assert torch.allclose(system.matrix @ true, system.rhs, atol=1e-9 * float(true.abs().max()))


def test_row_and_column_vectors_determine_sums_only():
    numbers = evaluate("closed_form(images=3)", build_model("factorized"), random_data()).numbers
    assert numbers["rank_positions"] == numbers["rank"] == 3 + 4 - 1 and numbers["psnr"] < 30
    assert numbers["condition"] < 1e12, "no division by rounding errors"


def test_the_penalty_of_hidden_positions_does_not_change_the_attack():
    plain, penalized = (
        closed_form_numbers("naive", mask_ratio=0.5, encoding=f"learned + mjp(localization={localization})")
        for localization in ("None", "'linear'")
    )
    assert plain["rank"] == penalized["rank"] < 12
    assert abs(plain["psnr"] - penalized["psnr"]) < 1


@pytest.mark.parametrize(
    "encoding", ["learned + mjp", "learned + mjp(localization='linear')", "fourier(hidden_dim=128) + mjp"]
)
def test_clipping_alone_hides_nothing(encoding):
    model, data = to_precision(build_model(encoding)), random_data()
    for spec in ("closed_form(images=2)", "closed_form(images=2, defense='clip(max_norm=0.01)')"):
        assert evaluate(spec, model, data).numbers["psnr_min"] > 180


def test_underdetermined_reconstructions_are_reported():
    assert closed_form_numbers("detects_hidden", "plain")["underdetermined"] == 0
    assert closed_form_numbers("detects_hidden", mask_ratio=0.5)["underdetermined"] == 1
    narrow = build_model("learned", "vit(patch=(4, 5), dim=8, depth=2, heads=2)")  # more positions than channels
    for model in (build_model("factorized"), narrow):
        assert evaluate("closed_form(images=2)", model, random_data()).numbers["underdetermined"] == 1

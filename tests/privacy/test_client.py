import pytest
import torch

from tests.evaluate import evaluate
from tests.privacy.models import GRID, IMAGE, build_model, random_data, shared_gradients
from vitpos.errors import InputError
from vitpos.evaluations import EVALUATIONS
from vitpos.evaluations.context import EvalContext
from vitpos.patches import permute_patches
from vitpos.positions import Positions
from vitpos.privacy.client import client_gradient, to_precision
from vitpos.training.recipe import Recipe

SWAPPED = torch.tensor([0, 5, 2, 3, 4, 1, 6, 7, 8, 9, 10, 11])  # patches 1 and 5 of the 3×4 grid
SOME_HIDDEN = torch.isin(torch.arange(12), torch.tensor([1, 5, 6]))[None]  # both of them, and one more


def largest_change(encoding, order, hidden=None):
    """Returns the largest change of a number of the gradient, relative to the largest number, if patches are permuted."""
    model = to_precision(build_model(encoding))
    with torch.no_grad():
        for parameter in model.encoding.parameters():  # some are zero initially
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    image, label = torch.randn(1, *IMAGE, dtype=torch.float64), torch.tensor([2])
    pos = Positions.from_grid(GRID)
    pos = pos if hidden is None else pos.hide(hidden)
    one, other = (client_gradient(model, x, label, pos) for x in (image, permute_patches(image, GRID, order)))
    largest = max(float(g.abs().max()) for g in one.values())
    return max(float((g - other[name]).abs().max()) for name, g in one.items()) / largest


def test_without_positions_all_permutations_of_the_patches_have_one_gradient():
    """MJP, section 5.4: the map from images to gradients is n-to-1, with n = N! for N patches."""
    for order in (SWAPPED, torch.randperm(12), torch.arange(12).flip(0)):
        assert largest_change("none", order) < 1e-12


@pytest.mark.parametrize("encoding", ["learned", "sinusoidal", "rope", "learned + mjp"])
def test_with_positions_permuted_patches_have_another_gradient(encoding):
    assert largest_change(encoding, SWAPPED) > 1e-6


def test_under_mjp_permutations_of_hidden_patches_alone_have_one_gradient():
    """The map is n-to-1 with n = k! for k hidden positions, as these share one vector."""
    assert largest_change("learned + mjp", SWAPPED, SOME_HIDDEN) < 1e-12
    assert largest_change("learned + mjp", SWAPPED, ~SOME_HIDDEN) > 1e-6, "both patches are visible"
    one_of_two = torch.isin(torch.arange(12), torch.tensor([1, 6]))[None]
    assert largest_change("learned + mjp", SWAPPED, one_of_two) > 1e-6
    assert largest_change("learned + mjp", torch.randperm(12), torch.ones(1, 12, dtype=torch.bool)) < 1e-12


def test_a_slot_index_makes_the_gradients_of_permuted_hidden_patches_differ():
    assert largest_change("learned + mjp(slot_index=True)", SWAPPED, SOME_HIDDEN) > 1e-6


def test_find_shuffled_and_find_original_differ_by_the_target_alone():
    model, data = build_model("learned"), random_data()
    scenarios = "find_shuffled", "find_original"
    for one, other in zip(*(shared_gradients(model, data, 3, scenario, 0.9) for scenario in scenarios), strict=True):
        assert torch.equal(one.image, other.image)
        assert torch.equal(one.target, one.image) and not torch.equal(other.target, other.image)
    shuffled, original = (
        evaluate(f"closed_form(images=3, scenario='{scenario}', mask_ratio=0.9)", model, data).numbers
        for scenario in scenarios
    )
    assert shuffled["psnr_min"] > 200 > 40 > original["psnr"]


def test_what_attackers_know_of_a_defense_is_shared():
    model, data = build_model("learned"), random_data()
    (plain,) = shared_gradients(model, data, 1)
    (noisy,) = shared_gradients(model, data, 1, defense="clip + noise(std=0.0001)")
    (pruned,) = shared_gradients(model, data, 1, defense="prune(fraction=0.9)")
    (both,) = shared_gradients(model, data, 1, defense="prune(fraction=0.9) + noise(std=1e-09)")
    assert plain.noise_std == 0 and noisy.noise_std == 1e-4 and noisy.clipped and not plain.clipped
    assert plain.prune_threshold is noisy.prune_threshold is None and pruned.prune_threshold == 0 < both.prune_threshold


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("closed_form(images=0)", "images=0"),
        ("closed_form(mask_ratio=1.5)", "mask_ratio=1.5"),
        ("april(scenario='find_shuffled')", "find_shuffled.*take 'plain'"),
        ("closed_form(defense='nosie')", "noise"),
        ("closed_form(defense='noise(std=-1.0)')", "0 or more"),
    ],
)
def test_impossible_options_are_rejected(spec, message):
    model = build_model("none", "cnn") if "scenario" in spec else build_model("learned")
    with pytest.raises(InputError, match=message):
        evaluate(spec, model, random_data())


def test_the_defense_of_training_is_the_default_and_progress_is_reported():
    fractions = []
    spec = "gradient_matching(images=2, steps=3, restarts=2, defense={})"
    ctx = EvalContext(build_model("learned"), random_data(), Recipe(defense="noise(std=0.5)"), fractions.append)
    default, same, none = (EVALUATIONS.build(spec.format(x), ctx).numbers for x in (None, "'noise(std=0.5)'", "''"))
    assert default == same != none
    assert fractions[:12] == pytest.approx([n / 12 for n in range(1, 13)])

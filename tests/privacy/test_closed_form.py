from dataclasses import replace

import pytest
import torch

from tests.evaluate import evaluate
from tests.privacy.models import (
    ADDS_NONE,
    ADDS_TRAINED_VECTORS,
    APRIL,
    IMAGE,
    PATCH,
    PLAIN,
    build_model,
    closed_form_numbers,
    random_data,
    shared_gradients,
)
from vitpos.data.dataset import load
from vitpos.errors import InputError
from vitpos.models import MODELS
from vitpos.patches import patchify
from vitpos.privacy.client import SharedGradient, client_gradient, to_precision
from vitpos.privacy.closed_form import (
    assumed_positions,
    invert_gradient,
    truncated_svd_solve,
)


def without_gradient(dtype=torch.float64):
    """Returns what a solver needs of a shared gradient: the type of its image, and no defense."""
    return SharedGradient(torch.zeros(1, dtype=dtype), *[None] * 4)


@pytest.mark.parametrize("spec", [PLAIN, "vit(patch=(4, 5), dim=32, depth=3, heads=2, pool='mean', registers=1)"])
@pytest.mark.parametrize("encoding", ADDS_TRAINED_VECTORS)
def test_trained_vectors_per_position_reveal_all_pixels_of_an_unmodified_model(spec, encoding):
    numbers = evaluate("closed_form(images=3)", build_model(encoding, spec), random_data()).numbers
    assert numbers["psnr_min"] > 200 and numbers["rank_positions"] == numbers["rank"] == 12
    single = evaluate("closed_form(images=3, precision='float32')", build_model(encoding, spec), random_data()).numbers
    assert single["psnr_min"] > 50


@pytest.mark.parametrize("encoding", ADDS_NONE)
def test_encodings_without_trained_added_vectors_have_no_closed_form(encoding):
    for attack, spec in (("closed_form", PLAIN), ("april", APRIL)):
        result = evaluate(f"{attack}(images=1)", build_model(encoding, spec), random_data())
        assert result.numbers == {} and not result.images and "added to tokens" in result.reason


def test_the_reason_is_given_where_the_attack_does_not_apply():
    swin = build_model("learned", "swin(patch=4, dim=32, depths=(2,), heads=(2,), window=2, drop_path=0.0)", (3, 8, 16))
    assert "norm" in evaluate("closed_form(images=2)", swin, random_data(2, (3, 8, 16))).reason
    assert (
        "projection of patches" in evaluate("closed_form(images=1)", build_model("none", "cnn"), random_data()).reason
    )
    convolution = evaluate("closed_form(images=1)", build_model("cpe(layers=(0,))"), random_data())
    assert "depends on the tokens" in convolution.reason and not convolution.numbers


def test_the_sum_over_hidden_positions_is_no_closed_form():
    spec = "closed_form(images=1, scenario='find_shuffled', attacker='knows_mask')"
    result = evaluate(spec, build_model("rope + mjp"), random_data())
    assert "added to tokens" in result.reason and not result.numbers


def test_if_all_positions_are_hidden_there_is_no_closed_form():
    model = build_model("learned + mjp")
    for attacker in ("naive", "detects_hidden", "knows_mask", "null_space"):
        spec = f"closed_form(images=1, scenario='find_shuffled', mask_ratio=1.0, attacker='{attacker}')"
        result = evaluate(spec, model, random_data())
        assert result.reason and not result.numbers, attacker


def test_hiding_positions_protects_and_an_unknown_vector_in_training_does_not():
    naive, adaptive = (closed_form_numbers(attacker, mask_ratio=0.5) for attacker in ("naive", "detects_hidden"))
    assert naive["psnr"] < 30 and adaptive["psnr"] < 30
    assert adaptive["rank_positions"] < 12
    assert closed_form_numbers("naive", mask_ratio=0.5, hide_masked=False)["psnr_min"] > 200
    assert closed_form_numbers("naive", "plain")["psnr_min"] > 200


@pytest.mark.parametrize("encoding", ["learned + mjp({})", "fourier(hidden_dim=128) + mjp(localization='linear', {})"])
def test_a_literal_attacker_is_misled_by_the_penalty_and_an_informed_one_is_not(encoding):
    def lowest_and_mean(weight, *, known):
        spec = encoding.format(f"localization_weight={weight}")
        numbers = closed_form_numbers("naive", "plain", encoding=spec, loss_known=known)
        return numbers["psnr_min"], numbers["psnr"]

    weights = 0.01, 0.1, 1.0
    assert all(lowest_and_mean(weight, known=True)[0] > 180 for weight in weights)
    little, more, most = (lowest_and_mean(weight, known=False)[1] for weight in weights)
    assert 60 > little > more > most and most < 20


def test_a_literal_attacker_solves_on_the_gradient_of_the_whole_loss():
    model, data = to_precision(build_model("learned + mjp")), random_data(1)
    (shared,) = shared_gradients(model, data, 1)
    table = shared.gradients["encoding.encodings.0.table"].flatten(0, -2)  # (N, D)
    expected = torch.linalg.pinv(table.mT) @ shared.gradients["project.weight"]
    found = patchify(invert_gradient(model, shared, loss_known=False).image, PATCH)[0]
    assert torch.allclose(found, expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(
    "encoding", ["learned", "learned + mjp(localization=None)", "learned + mjp(localization_weight=0.0)"]
)
def test_without_a_penalty_the_literal_attacker_is_the_informed_one(encoding):
    model, data = to_precision(build_model(encoding)), random_data(2)
    for scenario in ("plain", "find_shuffled"):
        for shared in shared_gradients(model, data, 2, scenario, 0.5):
            for attacker in ("naive", "null_space"):
                literal, informed = (
                    invert_gradient(model, shared, attacker, loss_known=known).image for known in (False, True)
                )
                assert torch.equal(literal, informed)


def test_the_literal_attacker_detects_the_same_hidden_positions():
    literal, informed = (
        closed_form_numbers("detects_hidden", mask_ratio=0.5, loss_known=known) for known in (False, True)
    )
    assert literal["rank_positions"] == informed["rank_positions"] < 12


def test_one_hidden_patch_and_slot_indices_are_not_protected():
    assert closed_form_numbers("detects_hidden", mask_ratio=0.1)["psnr_min"] > 200
    indexed = closed_form_numbers("knows_mask", mask_ratio=0.5, encoding="learned + mjp(slot_index=True)")
    assert indexed["psnr_min"] > 200


def test_hidden_positions_are_detected_in_the_gradient():
    for encoding in ("learned + mjp", "fourier(hidden_dim=128) + mjp"):
        model = build_model(encoding)
        for precision in ("float64", "float32"):
            for shared in shared_gradients(model, random_data(), 3, "find_shuffled", 0.5, precision=precision):
                found = assumed_positions(to_precision(model), shared, "detects_hidden")
                assert torch.equal(found.known, shared.positions.known) and not found.known.all()


def test_singular_values_below_the_noise_are_not_inverted():
    generator = torch.Generator().manual_seed(0)

    def random(*shape):
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    token_gradients = random(12, 12) @ torch.diag(10.0 ** -torch.arange(12.0).double()) @ random(12, 32)
    x = random(12, 5)
    noisy = token_gradients + 1e-4 * random(12, 32), token_gradients.mT @ x + 1e-4 * random(32, 5)
    aware, unaware = ((truncated_svd_solve(*noisy, without_gradient(), std)[0] - x).norm() for std in (1e-4, 0.0))
    assert aware < 1.1 * x.norm() and aware < 0.8 * unaware


def test_singular_values_below_the_precision_of_the_client_are_not_inverted():
    matrix = torch.diag(torch.tensor([1.0, 1e-3, 1e-9], dtype=torch.float64))
    assert truncated_svd_solve(matrix, matrix, without_gradient(torch.float32))[1] == 2
    assert truncated_svd_solve(matrix, matrix, without_gradient())[1] == 3


def test_singular_values_that_are_rounding_errors_are_not_inverted():
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        low_rank = torch.randn(64, 15, generator=generator).double() @ torch.randn(15, 96, generator=generator).double()
        assert truncated_svd_solve(low_rank, low_rank.mT, without_gradient())[1] == 15


def test_the_rank_of_the_gradients_is_at_most_that_of_the_position_equations():
    torch.manual_seed(0)
    model = MODELS.build("vit(patch=4, dim=64, depth=2, heads=4, pool='mean')", (1, 28, 28), 10, "xcit_fourier").eval()
    found = evaluate("closed_form(images=2)", model, load("mnist(limit=64, test_limit=8)")).numbers
    assert found["rank"] <= found["rank_positions"] < 49 and found["condition"] < 1e6


@pytest.mark.parametrize("fraction", [0.5, 0.9])
@pytest.mark.parametrize(
    ("encoding", "scenario", "attacker"),
    [("learned", "plain", "naive"), ("learned + mjp", "find_shuffled", "knows_mask")],
)
def test_an_attacker_that_knows_of_the_pruning_gains_by_it(encoding, scenario, attacker, fraction):
    model = to_precision(build_model(encoding))
    (shared,) = shared_gradients(model, random_data(), 1, scenario, 0.5, defense=f"prune(fraction={fraction})")
    aware, unaware = (
        (invert_gradient(model, one, attacker).image - shared.image).norm()
        for one in (shared, replace(shared, pruned=False))
    )
    assert aware < 1.5 * shared.image.norm() and aware < 0.8 * unaware


def test_pruning_is_taken_into_account_under_noise_too():
    def rank(defense):
        spec = f"closed_form(images=3, defense='{defense}')"
        return evaluate(spec, build_model("learned"), random_data()).numbers["rank"]

    pruned, with_noise = rank("prune(fraction=0.7)"), rank("prune(fraction=0.7) + noise(std=1e-09)")
    assert with_noise == pytest.approx(pruned, abs=0.5) and pruned < rank("noise(std=1e-09)")


def test_a_gradient_of_several_images_is_rejected():
    model = to_precision(build_model("learned"))
    images, labels = torch.randn(2, *IMAGE, dtype=torch.float64), torch.tensor([1, 2])
    shared = SharedGradient(images, images, labels, None, client_gradient(model, images, labels))
    with pytest.raises(InputError, match="2 images"):
        invert_gradient(model, shared)

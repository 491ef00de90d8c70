import pytest
import torch

from tests.evaluate import evaluate
from tests.privacy.models import (
    ADDS_TRAINED_VECTORS,
    APRIL,
    GRID,
    PATCH,
    PLAIN,
    build_model,
    random_data,
    shared_gradients,
)
from vitpos.patches import patchify, unpatchify
from vitpos.privacy.april import invert_gradient, with_token_metrics
from vitpos.privacy.client import to_precision


@pytest.mark.parametrize("encoding", [*ADDS_TRAINED_VECTORS[:3], "learned + rope", "learned + sape2"])
def test_patches_with_fewer_values_than_channels_are_found(encoding):
    numbers = evaluate("april(images=3)", build_model(encoding, APRIL), random_data()).numbers
    assert numbers["psnr_min"] > 120 and numbers["rank"] == 12 + 3


def test_patches_with_more_values_than_channels_are_found_up_to_the_null_space_of_the_projection():
    model, data = build_model("learned", APRIL.replace("dim=64", "dim=32")), random_data(1)
    (shared,) = shared_gradients(model, data, 1)
    model = to_precision(model)
    found = with_token_metrics(model, shared, invert_gradient(model, shared))
    weight = model.project.weight.detach()
    patches = patchify(shared.image, PATCH) @ (torch.linalg.pinv(weight) @ weight).mT
    assert torch.allclose(found.image, unpatchify(patches, GRID, PATCH), atol=1e-5)
    assert (found.image - shared.image).abs().max() > 0.1
    lost = float((found.image - shared.image).square().sum() / shared.image.square().sum())
    assert found.diagnostics["token_error"] < 1e-6 < 0.2 < lost
    assert found.diagnostics["lost_by_projection"] == pytest.approx(lost, rel=1e-4)


def test_the_literal_attacker_solves_equation_9_of_mjp_on_the_gradient_of_the_whole_loss():
    model, data = to_precision(build_model("learned + mjp(localization_weight=1.0)", APRIL)), random_data(1)
    (shared,) = shared_gradients(model, data, 1)
    g, project = shared.gradients, model.project
    token_gradients = torch.cat([g["prefix_tokens"], g["encoding.encodings.0.table"].flatten(0, -2)])  # (T, D)
    weight, gradient = model.blocks[0].attention.qkv.weight, g["blocks.0.attention.qkv.weight"]
    products = [w.mT @ dw for w, dw in zip(weight.chunk(3), gradient.chunk(3), strict=True)]  # of queries, keys, values
    tokens = torch.linalg.pinv(token_gradients.mT) @ sum(products)
    patches = tokens[3:] - model.encoding.encodings[0].table.flatten(0, -2) - project.bias
    patches = patches @ torch.linalg.pinv(project.weight).mT
    expected = unpatchify(patches[None], GRID, PATCH)
    literal, informed = (invert_gradient(model, shared, loss_known=known).image for known in (False, True))
    assert torch.allclose(literal, expected, rtol=1e-4, atol=1e-5)
    assert (informed - shared.image).abs().max() < 1e-3 < 0.1 < (literal - shared.image).abs().max()


@pytest.mark.parametrize(
    ("spec", "encoding", "reason"),
    [
        (PLAIN, "learned", "april_block=True"),
        (APRIL, "learned + cpe(layers=(0,))", "depends on the tokens"),
        ("cnn", "none", "april_block=True"),
    ],
)
def test_the_reason_is_given_where_the_attack_does_not_apply(spec, encoding, reason):
    assert reason in evaluate("april(images=1)", build_model(encoding, spec), random_data()).reason

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

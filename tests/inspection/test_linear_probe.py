"""Linear probes of positions: chance without positions, known tables, and ridge regression written out."""

import math

import pytest
import torch

from tests.inspection.models import GRID, MODEL_SPECS, SHAPE, build, random_data
from vitpos.errors import InputError
from vitpos.inspection._batches import image_batches
from vitpos.inspection.linear_probe import probe_positions
from vitpos.models import MODELS
from vitpos.positions import Positions


@pytest.mark.parametrize("spec", MODEL_SPECS)
def test_probes_are_at_chance_without_positions(spec):
    for probe in probe_positions(build(spec), random_data(200), limit=None):
        assert probe.r2 == pytest.approx(0, abs=0.01)
        assert probe.chance == pytest.approx((1 + 1.5) / 2) and probe.error == pytest.approx(probe.chance, rel=0.01)


def test_probes_find_positions_that_were_added_to_tokens():
    wide = "vit(patch=(2, 3), dim=32, depth=2, heads=2, weight_init='xavier')"  # more channels than positions
    entering, *_, last = probe_positions(build(wide, "learned(std=10.0)"), random_data(200))
    assert entering.r2 > 0.98 and entering.error < 0.15 and last.r2 > 0.9
    narrow = probe_positions(build(encoding="learned(std=10.0)"), random_data(200))[0]
    assert narrow.r2 == pytest.approx(16 / 23, abs=0.3), "unordered vectors: 16 channels for 23 degrees of freedom"
    for encoding in ("rope", "relative(std=1.0)"):
        assert abs(probe_positions(build(encoding=encoding), random_data(200))[0].r2) < 0.01, (
            "nothing is added to tokens"
        )
    entering, _, after = probe_positions(build(encoding="cpe(layers=(0, 1))"), random_data(300))
    assert abs(entering.r2) < 0.01 < after.r2, "zero padding reveals the border"


def test_a_probe_equals_ridge_regression_written_out():
    model, data = build("minimal(patch=(2, 3), dim=16)", "learned(std=0.5)"), random_data(50)
    images = torch.cat(list(image_batches(model, data, limit=None, shuffled=True)))
    with torch.inference_mode():
        x = model.embed_patches(images)[0].double()
    y = Positions.from_grid(GRID).coords[0].double().expand(50, -1, -1)
    train, validation, test = (torch.arange(50) % 5 < 3, torch.arange(50) % 5 == 3, torch.arange(50) % 5 == 4)

    def flat(z, part):
        return z[part].flatten(0, 1)

    mean, center = flat(x, train).mean(0), y[0].mean(0)
    a = flat(x, train) - mean
    best, weight = math.inf, None
    for penalty in (10.0**power for power in range(-8, 5)):
        ridge = penalty * a.square().mean() * len(a) * torch.eye(16)
        candidate = torch.linalg.solve(a.mT @ a + ridge, a.mT @ (flat(y, train) - center))
        error = ((flat(x, validation) - mean) @ candidate + center - flat(y, validation)).square().sum().item()
        if error < best:
            best, weight = error, candidate
    residual = (flat(x, test) - mean) @ weight + center - flat(y, test)
    found = probe_positions(model, data)[0]
    r2 = 1 - residual.square().mean(0) / (flat(y, test) - center).square().mean(0)
    assert found.r2 == pytest.approx(r2.mean().item()) and found.error == pytest.approx(residual.abs().mean().item())
    each = 1 - (residual.unflatten(0, (10, -1)).square().mean(1) / (y[0] - center).square().mean(0)).mean(1)
    assert found.standard_error == pytest.approx(each.std().item() / 10**0.5)


def test_an_axis_with_one_position_is_ignored():
    torch.manual_seed(0)
    model = MODELS.build("vit(patch=(8, 3), dim=16, depth=1, heads=2)", SHAPE, 3, "learned(std=3.0)")
    assert probe_positions(model, random_data(100))[0].r2 > 0.9
    one = MODELS.build("vit(patch=(8, 18), dim=16, depth=1, heads=2)", SHAPE, 3, "none")
    with pytest.raises(InputError, match="of 1x1 patches"):
        probe_positions(one, random_data(20))
    with pytest.raises(InputError, match="got 4 images"):
        probe_positions(model, random_data(4))

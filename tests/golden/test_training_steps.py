"""Training takes the steps that it took before the redesign, also when it is stopped and resumed."""

import pytest

from tests.golden.stored import TRAINING_STEPS, read
from tests.golden.training_steps import TRAININGS, trained

EXACT = (
    1e-9  # float64; kernels for other processors differ by 1e-10, where a gradient is nearly 0 and AdamW scales it up
)
PAINTED = 1e-6  # augmentations that compute float32 images differ by 6e-9
FLOAT32_IMAGES = ("mjp per image, pieces",)


def compare(name, found, stored):
    tolerance = PAINTED if name in FLOAT32_IMAGES else EXACT
    assert [epoch["epoch"] for epoch in found] == [epoch["epoch"] for epoch in stored]
    for one, before in zip(found, stored, strict=True):
        where = f"epoch {before['epoch']}"
        assert one["next"] == before["next"], f"{where}: the random generator is in another state"
        assert one["decay"] == before["decay"], f"{where}: other parameters decay"
        assert one["rates"] == [pytest.approx(rates, rel=EXACT) for rates in before["rates"]], where
        assert one["accuracy"] == before["accuracy"], where
        assert one["loss"] == (before["loss"] and pytest.approx(before["loss"], rel=tolerance)), where
        assert one["weights"] == pytest.approx(before["weights"], rel=tolerance, abs=tolerance), where


@pytest.mark.parametrize("name", TRAININGS)
def test_training_is_that_of_before(name):
    stored = read(TRAINING_STEPS)[name]
    compare(name, trained(name, stored["shapes"]), stored["epochs"])


@pytest.mark.parametrize("name", TRAININGS)
def test_resumed_training_is_that_of_before(name):
    stored = read(TRAINING_STEPS)[name]
    compare(name, trained(name, stored["shapes"], resumed=True), stored["epochs"])

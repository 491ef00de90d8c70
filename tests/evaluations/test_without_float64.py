"""Evaluations and inspections on a device without float64, such as MPS."""

import pytest
import torch

from tests.without_float64 import DEVICE, WithoutFloat64, put_on_device
from vitpos import ViT
from vitpos.data.dataset import load
from vitpos.evaluations import ATTACKS, EVALUATIONS
from vitpos.evaluations.context import EvalContext
from vitpos.inspection.linear_probe import probe_positions

COPIES = {"cost", "cost_curve"} | set(ATTACKS)  # which evaluate a copy of the model; a copy has no marks
EXAMPLES = {"mirrored"}  # of CONTRIBUTING.md
LOGGED = {"learning_curve"}  # needs the log of a training


@pytest.fixture(scope="module")
def data():
    return load("mnist(limit=60, test_limit=40)")


def small(**options):
    torch.manual_seed(0)
    encoding = "learned(prefix_embed=True) + sape2"
    return ViT((1, 28, 28), 10, encoding, patch=7, dim=16, depth=2, heads=2, **options).eval()


@pytest.mark.parametrize("name", sorted(set(EVALUATIONS) - COPIES - EXAMPLES - LOGGED))
def test_evaluations_need_no_float64_on_the_device(data, name):
    model = put_on_device(small())
    with WithoutFloat64():
        assert model.device == DEVICE
        EvalContext(model, data).evaluate(name)


def test_a_linear_probe_needs_no_float64_on_the_device_and_gives_the_same_scores(data):
    expected = probe_positions(small(), data)
    model = put_on_device(small())
    with WithoutFloat64():
        assert probe_positions(model, data) == expected


def test_float64_and_tensors_of_two_devices_are_seen():
    x = torch.ones(3)
    with WithoutFloat64():
        on_device = x.to(DEVICE)
        assert on_device.device == DEVICE and on_device.cpu().device == x.device != DEVICE
        on_device.cpu().double()
        for wrong in (
            on_device.double,
            lambda: on_device + x,
            lambda: torch.zeros(2, dtype=torch.float64, device=DEVICE),
        ):
            with pytest.raises(TypeError):
                wrong()

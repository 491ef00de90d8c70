"""Models with every encoding can be exported."""

import pytest
import torch

from tests.encodings.contract import (
    GRID,
    N,
    every,
    model_of,
    random_images,
    shuffled,
)
from vitpos.positions import Positions


def exports(spec, positions):
    """Whether the exported model computes the same logits, without positions, with them, or with some hidden."""
    model, images = model_of(spec, torch.float32), random_images(dtype=torch.float32)
    pos = Positions.from_grid(GRID).permute(shuffled())
    inputs = {"none": (images,), "given": (images, pos), "hidden": (images, pos.hide(torch.arange(N)[None] < 4))}
    exported = torch.export.export(model, inputs[positions]).module()
    return torch.allclose(exported(*inputs[positions]), model(*inputs[positions]), atol=1e-5)


@pytest.mark.parametrize("spec", ["learned + rope", "relative", "sape2", "shaw", "cpe", "pape"])
@pytest.mark.filterwarnings("ignore")  # torch's own, while it traces
def test_an_encoding_with_each_kind_of_hook_can_be_exported(spec):
    assert exports(spec, "hidden")


@pytest.mark.slow
@every
@pytest.mark.parametrize("positions", ["none", "given", "hidden"])
@pytest.mark.filterwarnings("ignore")
def test_every_option_can_be_exported_without_with_and_with_hidden_positions(spec, positions):
    assert exports(spec, positions)

"""Conversion of images to other sizes and numbers of channels."""

import numpy as np
import pytest
import torch
from PIL import Image

from vitpos.data.image_ops import to_gray, to_shape
from vitpos.errors import InputError


def test_images_are_converted_to_another_shape():
    gray = torch.arange(4, dtype=torch.uint8).mul(60).view(1, 1, 2, 2)
    color = to_shape(gray, (3, 4, 6))
    assert color.shape == (1, 3, 4, 6) and torch.equal(color[:, 0], color[:, 2])
    assert torch.equal(to_shape(gray, (1, 2, 2)), gray) and torch.equal(
        to_shape(to_shape(gray, (3, 2, 2)), (1, 2, 2)), gray
    )
    red = torch.tensor([255, 0, 0], dtype=torch.uint8).view(1, 3, 1, 1).expand(1, 3, 8, 8)
    assert to_shape(red, (1, 4, 4)).unique().tolist() == [76]
    stripes = (torch.arange(16) % 2 * 255).to(torch.uint8).expand(1, 1, 16, 16)
    assert (to_shape(stripes, (1, 4, 4)).float() - 127.5).abs().max() < 20, "antialiased"
    with pytest.raises(InputError, match="4 channels cannot be converted to 3"):
        to_shape(torch.zeros(1, 4, 2, 2, dtype=torch.uint8), (3, 2, 2))


def test_gray_values_equal_those_of_pillow():
    colors = torch.randint(256, (64, 64, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    pillow = torch.from_numpy(np.array(Image.fromarray(colors.numpy()).convert("L"))).float()
    ours = to_gray(colors.permute(2, 0, 1)[None].float())
    assert (ours - pillow).abs().max() <= 0.501 and torch.equal(to_gray(ours), ours)

import numpy as np
import pytest
import torch
from PIL import Image

from vitpos.data.dataset import load
from vitpos.data.image_files import read_images
from vitpos.errors import InputError
from vitpos.models import MODELS


def test_images_of_another_size_are_rejected_or_cropped(tmp_path):
    wide = np.zeros((56, 112), np.uint8)
    wide[:, 28:56] = 200  # the left half of its center
    Image.fromarray(wide).save(tmp_path / "wide.png")
    (image,) = read_images([tmp_path / "wide.png"], (1, 28, 28), crop=True)
    assert image.shape == (1, 28, 28) and (image[0, :, 3:11] == 200).all() and (image[0, :, 17:25] == 0).all()
    with pytest.raises(InputError, match="56x112 pixels"):
        read_images([tmp_path / "wide.png"], (1, 28, 28))


def test_images_of_16_bits_are_those_of_8_bits(tmp_path):
    pixels = torch.randint(256, (28, 28)).numpy()
    Image.fromarray(pixels.astype("uint8")).save(tmp_path / "8.png")
    Image.fromarray((257 * pixels).astype("uint16")).save(tmp_path / "16.png")
    assert torch.equal(*read_images([tmp_path / "8.png", tmp_path / "16.png"], (1, 28, 28)))


def test_images_in_color_keep_their_channels(tmp_path):
    pixels = torch.randint(256, (6, 8, 3), dtype=torch.uint8)
    Image.fromarray(pixels.numpy()).save(tmp_path / "color.png")
    assert torch.equal(read_images([tmp_path / "color.png"], (3, 6, 8))[0], pixels.permute(2, 0, 1))


def test_test_images_are_replaced_and_labeled_with_the_predictions_of_a_model():
    data = load("mnist(limit=64)")
    model = MODELS.build("vit(patch=7, dim=16, depth=1, heads=2)", data.shape, 10, "learned").eval()
    images = data.test.images[3:8]
    replaced = data.with_test_images(images, model)
    assert torch.equal(replaced.test.images, images) and replaced.train is data.train
    assert torch.equal(replaced.test.labels, model(data.normalize(images)).argmax(1))

import pytest
import torch

from vitpos.data.dataset import load
from vitpos.errors import InputError


def test_noise_has_the_requested_shape_and_every_class():
    data = load("noise(shape=(1, 6, 8), classes=3, count=7, name='a')")
    assert data.shape == (1, 6, 8) and data.classes == ("a 0", "a 1", "a 2") and len(data.train) == len(data.test) == 7
    assert data.train.labels.tolist() == [0, 1, 2, 0, 1, 2, 0] and not torch.equal(data.train.images, data.test.images)
    assert abs(data.normalize(load("noise(count=999)").train.images).mean()) < 0.01


@pytest.mark.parametrize("options", ["classes=0", "count=0", "shape=(3, 0, 8)", "seed=-1"])
def test_impossible_noise_is_refused(options):
    with pytest.raises(InputError, match=r"data 'noise' got .*; take 1 or more"):
        load(f"noise({options})")

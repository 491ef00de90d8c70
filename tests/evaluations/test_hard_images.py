"""Hard test images: those that a nearest-mean classifier misclassifies."""

import pytest
import torch

from tests.evaluate import evaluate, numbers_of
from tests.references import peer
from vitpos.data.dataset import Dataset, Split, load
from vitpos.evaluations.hard_images import nearest_mean
from vitpos.models.base import Classifier


class Bright(Classifier):
    """Predicts class 1 if the first pixel is above half; its confidence grows with the distance from half."""

    head = torch.nn.Identity()

    def forward_features(self, images, positions=None):
        return torch.stack([torch.zeros(len(images)), images[:, 0, 0, 0] - 127.5], 1) / 10


def gray(values, labels):
    images = torch.tensor(values, dtype=torch.uint8)[:, None, None, None].expand(-1, 1, 2, 3).contiguous()
    return Split(images, torch.tensor(labels))


def test_accuracy_and_aurra_are_those_of_the_images_on_the_wrong_side():
    train = gray([10, 30, 200, 220], [0, 0, 1, 1])  # means 20 and 210: the border is 115
    test = gray([5, 110, 120, 130, 250, 100], [0, 1, 0, 0, 1, 0])  # hard: 110, 120 and 130
    data = Dataset(train, test, ("dark", "bright"), (0.0,), (1 / 255,))
    numbers = numbers_of("hard_images", Bright(), data)
    assert numbers["fraction"] == 3 / 6 and numbers["accuracy"] == pytest.approx(1 / 3)  # 120 is predicted as dark
    assert numbers["aurra"] == pytest.approx((0 + 1 / 2 + 1 / 3) / 3)  # in order of confidence: 110, 120, 130
    easy = Dataset(train, gray([5, 250], [0, 1]), ("dark", "bright"), (0.0,), (1 / 255,))
    assert "all test images" in evaluate("hard_images", Bright(), easy).reason


@pytest.mark.filterwarnings("ignore:self.within_class_std_dev_")  # pixels that are always black
def test_the_filter_is_scikit_learns_nearest_centroid():
    data = load("mnist(limit=2500, test_limit=300)")
    peers = peer("sklearn.neighbors").NearestCentroid().fit(data.train.images.flatten(1).numpy(), data.train.labels)
    expected = torch.from_numpy(peers.predict(data.test.images.flatten(1).numpy()))
    assert torch.equal(nearest_mean(data), expected)


def test_a_class_without_training_images_is_never_predicted():
    data = Dataset(gray([10, 200], [0, 2]), gray([0, 90, 255], [0, 1, 2]), ("a", "b", "c"), (0.0,), (1 / 255,))
    assert nearest_mean(data).tolist() == [0, 0, 2]

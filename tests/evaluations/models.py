"""Models with random weights and small data sets for the tests of evaluations."""

from dataclasses import replace

import torch

from tests.evaluate import numbers_of
from vitpos.data.dataset import Dataset, load
from vitpos.models import MODELS


def random_model(encoding, spec="minimal"):
    """A model for digits with weights so large that positions change its predictions."""
    torch.manual_seed(0)
    model = MODELS.build(spec, (1, 28, 28), 10, encoding)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3)
        for parameter in model.encoding.parameters():
            parameter.normal_()
    return model


def digits(count):
    """The first test images of MNIST, and eight training images."""
    data = load("mnist(limit=8)")
    return replace(data, test=data.test.head(count))


def small_vit(encoding, spec="vit(patch=4, dim=16, depth=2, heads=2, pool='mean', weight_init='xavier')"):
    """A float64 model for digits."""
    torch.manual_seed(0)
    return MODELS.build(spec, (1, 28, 28), 10, encoding).double()


class Float64Inputs(Dataset):
    """A data set with float64 inputs, so that rounding errors stay below the tolerances."""

    def normalize(self, images):
        return super().normalize(images).double()


def with_float64_inputs(data):
    """The same data with float64 inputs."""
    return Float64Inputs(data.train, data.test, data.classes, data.mean, data.std)


def accuracy_of(model, data, images, positions=None):
    """Accuracy on uint8 images, without an evaluation."""
    with torch.no_grad():
        predicted = model(data.normalize(images), positions).argmax(1)
    return (predicted == data.test.labels).double().mean().item()


def inputs_of(model, spec, data):
    """The inputs and positions of the first batch that an evaluation gives to a model."""
    seen = []
    features = model.forward_features
    model.forward_features = lambda images, positions=None: (
        seen.append((images, positions)) or features(images, positions)
    )
    numbers_of(spec, model, data)
    return seen[0]

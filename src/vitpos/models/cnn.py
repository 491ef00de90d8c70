"""A small convolutional network, the baseline with built-in locality."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from vitpos.errors import InputError
from vitpos.models.base import Classifier, EncodingLike, Shape, reject_encoding
from vitpos.positions import Positions


class CNN(Classifier):
    """Two 3×3 convolutions, each followed by 2×2 max pooling, and an MLP classifier.

    Args:
        width: Channels of the first convolution; the second has twice as many.
        hidden_dim: Width of the MLP.
    """

    takes_encoding = False

    def __init__(
        self,
        image_shape: Shape,
        num_classes: int,
        encoding: EncodingLike = "none",
        *,
        width: int = 16,
        hidden_dim: int = 128,
    ):
        super().__init__()
        reject_encoding("cnn", encoding)
        if min(width, hidden_dim) < 1:
            raise InputError(f"model 'cnn' got width={width}, hidden_dim={hidden_dim}; choose 1 or more")
        channels, rows, columns = image_shape
        self.conv1 = nn.Conv2d(channels, width, 3, padding=1)
        self.conv2 = nn.Conv2d(width, 2 * width, 3, padding=1)
        self.dense = nn.Linear(2 * width * (rows // 4) * (columns // 4), hidden_dim)
        self.head = nn.Linear(hidden_dim, num_classes)

    def forward_features(self, images: Tensor, positions: Positions | None = None) -> Tensor:
        """Returns features (B, hidden_dim); ``positions`` must be None, because a CNN has no tokens."""
        assert positions is None, "a CNN has no tokens and takes no positions"
        x = F.max_pool2d(F.relu(self.conv1(images)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return F.relu(self.dense(x.flatten(1)))

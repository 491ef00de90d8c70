"""A small convolutional network: the baseline that builds neighbourhood in."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from vitpos.errors import UserError
from vitpos.models.base import Classifier, EncodingLike, Shape, refuse_encoding
from vitpos.positions import Positions


class CNN(Classifier):
    """Two 3×3 convolutions, each halved by pooling, and a feed-forward classifier."""

    tokens = False

    def __init__(
        self, image: Shape, classes: int, encoding: EncodingLike = "none", *, width: int = 16, hidden: int = 128
    ):
        super().__init__()
        refuse_encoding("cnn", encoding)
        if min(width, hidden) < 1:
            raise UserError(f"model 'cnn' got width={width}, hidden={hidden}; choose 1 or more")
        channels, rows, columns = image
        self.conv1 = nn.Conv2d(channels, width, 3, padding=1)
        self.conv2 = nn.Conv2d(width, 2 * width, 3, padding=1)
        self.dense = nn.Linear(2 * width * (rows // 4) * (columns // 4), hidden)
        self.head = nn.Linear(hidden, classes)

    def features(self, images: Tensor, positions: Positions | None = None) -> Tensor:
        """(B, hidden). A picture has its places built in, so ``positions`` must not be given."""
        assert positions is None, "a CNN has no tokens whose places could be told"
        x = F.max_pool2d(F.relu(self.conv1(images)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return F.relu(self.dense(x.flatten(1)))

"""The residual network with bottleneck blocks (He et al., CVPR 2016), a convolutional baseline."""

from __future__ import annotations

from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from vitpos.errors import InputError
from vitpos.models.base import Classifier, EncodingLike, Shape, reject_encoding
from vitpos.positions import Positions

EXPANSION = 4  # ratio of the output channels of a bottleneck to its inner channels


class ResNet(Classifier):
    """ResNet-50 by default: stages of bottleneck blocks, each at half the resolution and twice the width of the one before.

    A stage downsamples in the 3×3 convolution of its first block (v1.5, as in torchvision), not in the 1×1 convolution
    before it as in the paper.

    Args:
        depths: Number of blocks of each stage.
        width: Inner channels of the first stage.
        stem: ``large``, a 7×7 convolution and pooling that divide the resolution by 4; ``small``, a 3×3 convolution without
            downsampling, for images of 28 to 32 pixels.
    """

    takes_encoding = False

    def __init__(
        self,
        image_shape: Shape,
        num_classes: int,
        encoding: EncodingLike = "none",
        *,
        depths: tuple[int, ...] = (3, 4, 6, 3),
        width: int = 64,
        stem: Literal["large", "small"] = "large",
    ):
        super().__init__()
        reject_encoding("resnet", encoding)
        if not depths or min(*depths, width) < 1:
            raise InputError(
                f"model 'resnet' got depths={depths}, width={width}; choose a stage and 1 or more everywhere"
            )
        side, stride = (7, 2) if stem == "large" else (3, 1)
        self.conv = nn.Conv2d(image_shape[0], width, side, stride=stride, padding=side // 2, bias=False)
        self.norm = nn.BatchNorm2d(width)
        self.pool = nn.MaxPool2d(3, stride=2, padding=1) if stem == "large" else nn.Identity()
        self.stages = nn.Sequential()
        channels = width
        for index, depth in enumerate(depths):
            inner = width * 2**index
            strides = [2 if index else 1] + [1] * (depth - 1)
            entering = [channels] + [EXPANSION * inner] * (depth - 1)
            blocks = (Bottleneck(*sizes, inner) for sizes in zip(entering, strides, strict=True))
            self.stages.append(nn.Sequential(*blocks))
            channels = EXPANSION * inner
        self.head = nn.Linear(channels, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward_features(self, images: Tensor, positions: Positions | None = None) -> Tensor:
        """Returns features (B, D); ``positions`` must be None, because a ResNet has no tokens."""
        assert positions is None, "a ResNet has no tokens and takes no positions"
        x = self.pool(F.relu(self.norm(self.conv(images))))
        return self.stages(x).mean((2, 3))


class Bottleneck(nn.Module):
    """A residual block of 1×1, 3×3 and 1×1 convolutions, with ``inner``, ``inner`` and 4·``inner`` output channels.

    The input has ``channels`` channels, and the 3×3 convolution the given ``stride``. The scale of the last norm
    starts at zero, so that the block starts as the identity.
    """

    def __init__(self, channels: int, stride: int, inner: int):
        super().__init__()
        outer = EXPANSION * inner
        self.conv1 = nn.Conv2d(channels, inner, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(inner)
        self.conv2 = nn.Conv2d(inner, inner, 3, stride=stride, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(inner)
        self.conv3 = nn.Conv2d(inner, outer, 1, bias=False)
        self.norm3 = nn.BatchNorm2d(outer)
        nn.init.zeros_(self.norm3.weight)
        self.shortcut = nn.Sequential()  # the identity, unless the shape changes
        if stride > 1 or channels != outer:
            self.shortcut.append(nn.Conv2d(channels, outer, 1, stride=stride, bias=False))
            self.shortcut.append(nn.BatchNorm2d(outer))

    def forward(self, x: Tensor) -> Tensor:
        """Maps feature maps (B, channels, height, width) to (B, 4·inner, height / stride, width / stride)."""
        y = F.relu(self.norm1(self.conv1(x)))
        y = F.relu(self.norm2(self.conv2(y)))
        return F.relu(self.norm3(self.conv3(y)) + self.shortcut(x))

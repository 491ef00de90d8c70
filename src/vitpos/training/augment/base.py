"""``Augment``: the base class of augmentations, and their composition by ``+``."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from vitpos.data.dataset import Dataset
from vitpos.training import AUGMENTATIONS


class Augment:
    """A random change of training batches; ``one + other`` applies both in order.

    A subclass changes uint8 images (``on_uint8``), or normalized inputs with their targets (``on_inputs``). Targets are
    class numbers (B,), or class probabilities (B, classes) if the attribute ``mixes_targets`` is True, as for mixup. It is
    True for a sum if it is for one of its terms. All random numbers come from torch's global generators, so that one seed
    determines a training.
    """

    mixes_targets: bool = False

    def set_progress(self, progress: float) -> None:
        """Called before each training step with the fraction of training that is done, 0 to 1; does nothing by default."""

    def on_uint8(self, images: Tensor) -> Tensor:
        """Changes uint8 images (B, C, height, width); the base class returns them unchanged."""
        return images

    def on_inputs(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Changes normalized inputs (B, C, height, width) and targets; the base class returns them unchanged.

        Targets are class numbers (B,), or class probabilities (B, classes) if ``mixes_targets`` is True, as for mixup.
        """
        return inputs, targets

    def prepare_batch(self, data: Dataset, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Augments a batch: applies ``on_uint8``, normalizes with the data's mean and std, and applies ``on_inputs``.

        Returns inputs (B, C, height, width) and targets: class numbers (B,), or probabilities (B, classes) if
        ``mixes_targets`` is True, as for mixup.

        Args:
            images: uint8 images (B, C, height, width).
            labels: Class numbers (B,).
        """
        targets = F.one_hot(labels, len(data.classes)).float() if self.mixes_targets else labels
        return self.on_inputs(data.normalize(self.on_uint8(images)), targets)

    def __add__(self, other: Augment) -> Augment:
        return Compose(self, other)


def build_augment(spec: str) -> Augment:
    """Returns the `Augment` of a spec such as ``"flip + crop(pad=4)"``; that of an empty spec changes nothing."""
    augment: Augment = AUGMENTATIONS.build(spec) if spec else Augment()
    return augment


class Compose(Augment):
    """Applies two augmentations, ``first`` and then ``second``, in each step of the preparation of a batch.

    The uint8 images go through the first and the second augmentation; after normalization, so do inputs and targets.
    """

    def __init__(self, first: Augment, second: Augment):
        self.first, self.second = first, second
        self.mixes_targets = first.mixes_targets or second.mixes_targets

    def set_progress(self, progress: float) -> None:
        """Passes ``progress``, the fraction of training that is done, 0 to 1, to both augmentations."""
        self.first.set_progress(progress)
        self.second.set_progress(progress)

    def on_uint8(self, images: Tensor) -> Tensor:
        """Applies the first augmentation, then the second, to uint8 images (B, C, height, width)."""
        return self.second.on_uint8(self.first.on_uint8(images))

    def on_inputs(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Applies the first augmentation, then the second, to normalized inputs (B, C, height, width) and targets.

        Targets are class numbers (B,), or class probabilities (B, classes) if ``mixes_targets`` is True, as for mixup.
        """
        return self.second.on_inputs(*self.first.on_inputs(inputs, targets))

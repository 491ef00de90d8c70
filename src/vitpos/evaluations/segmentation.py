"""Segmentation by patches: a linear head predicts the class of each patch from its token after the last block."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitpos.data import SEGMENTATION_SETS
from vitpos.data.segmentation_sets import IGNORE_INDEX, SegmentationSet
from vitpos.errors import InputError
from vitpos.evaluations.context import NO_PATCHES, EvalContext
from vitpos.evaluations.result import Result
from vitpos.metrics.classification import confusion_matrix
from vitpos.models.base import PatchClassifier
from vitpos.patches import make_generator, patchify
from vitpos.training.loop import optimizer_steps
from vitpos.training.schedule import warmup_cosine

BATCH = 50  # scenes per step
HEAD_LR, FINETUNE_LR, WARMUP = 0.1, 0.001, 0.1  # peak learning rates, and the fraction of training before the peak


def segmentation(
    ctx: EvalContext,
    *,
    dataset: str = "digit_scenes",
    finetune: bool = False,
    epochs: int = 10,
    seed: int = 0,
) -> Result:
    """Segmentation by patches: a linear head predicts the class of each patch from its token after the last block.

    miou: mean intersection over union on the test scenes, over the classes that occur there. The intersection is the
    patches that have the class and are predicted as it, the union those that have it or are predicted as it.
    mean_accuracy: mean over the same classes of the fraction of their patches, 0 to 1, that are predicted correctly.
    This weighs rare classes like frequent ones. accuracy: fraction of all patches that are predicted correctly.
    majority_accuracy: accuracy of always predicting the most frequent class.
    The class of a patch is the most frequent class of its pixels, the lowest number in a tie. Pixels of value 255 have no
    class; patches of only such pixels are ignored.
    The head is initialized to zero and trained with Adam and cross-entropy on standardized tokens of the frozen model.

    Args:
        dataset: A segmentation set: ``digit_scenes``, or ``mask_folder(path='…')`` for your own images and masks. Scenes
            have the shape of the model's images. At most as many training and test scenes are used as the model's own data
            set has training and test images.
        finetune: After the head is trained, trains the head and a copy of the model together for ``epochs`` more epochs, at
            a hundredth of the learning rate. The model is in evaluation mode, so that drop-path and the shuffling of
            ``mjp`` are off.
        epochs: Number of epochs of training.
        seed: Seed of the order of the scenes.
    """
    data = ctx.data
    if epochs < 1:
        raise InputError(f"evaluation 'segmentation' got epochs={epochs}; train for 1 or more")
    if not isinstance(ctx.model, PatchClassifier):
        return Result(reason=NO_PATCHES)
    scenes: SegmentationSet = SEGMENTATION_SETS.build(dataset, data.shape)
    classes = scenes.classes
    train, test = scenes.train.head(len(data.train)), scenes.test.head(len(data.test))
    model = deepcopy(ctx.model).eval()
    device = model.device

    def tokens(images: Tensor) -> Tensor:
        """Returns the patch tokens (B, N, D) after the last block."""
        return model.forward_tokens(data.normalize(images.to(device)))[0][:, model.geometry.num_prefix :]

    with torch.no_grad():
        frozen_tokens = torch.cat([tokens(images) for images in train.images.split(BATCH)])
    labels = patch_classes(train.masks, model.patch, classes).to(device)
    if frozen_tokens.shape[1] != labels.shape[1]:
        return Result(reason=f"the model has {frozen_tokens.shape[1]} tokens for {labels.shape[1]} patches")
    head = Head(frozen_tokens, classes)
    _train(head, frozen_tokens.__getitem__, labels, list(head.parameters()), HEAD_LR, epochs, seed)
    if finetune:
        both = [*head.parameters(), *model.parameters()]
        _train(head, lambda index: tokens(train.images[index]), labels, both, FINETUNE_LR, epochs, seed)
    with torch.no_grad():
        predicted = torch.cat([head(tokens(images)).argmax(2).cpu() for images in test.images.split(BATCH)])
    target = patch_classes(test.masks, model.patch, classes)
    valid = target != IGNORE_INDEX
    return Result(segmentation_metrics(confusion_matrix(target[valid], predicted[valid], classes)))


class Head(nn.Module):
    """A linear layer that maps tokens to the logits of ``classes`` classes, with weights initialized to zero.

    Tokens are first standardized by the mean and std of ``tokens`` (n, N, D), the patch tokens of the training images.
    """

    def __init__(self, tokens: Tensor, classes: int):
        super().__init__()
        flat = tokens.flatten(0, 1)
        self.mean, self.scale = flat.mean(0), flat.std(0, correction=0).clamp_min(1e-6)
        self.weight = nn.Parameter(flat.new_zeros(classes, flat.shape[1]))
        self.bias = nn.Parameter(flat.new_zeros(classes))

    def forward(self, tokens: Tensor) -> Tensor:
        """Standardizes tokens (…, D) and maps them to logits (…, classes)."""
        return F.linear((tokens - self.mean) / self.scale, self.weight, self.bias)


def patch_classes(masks: Tensor, patch: tuple[int, int], classes: int) -> Tensor:
    """Returns the most frequent class in each of the N patches of n masks: (n, N).

    A pixel of value 255 has no class; patches of only such pixels get 255 (IGNORE_INDEX).

    Args:
        masks: (n, height, width), the class number of each pixel.
        patch: Height and width of a patch in pixels.
        classes: Number of classes.
    """
    cells = patchify(masks[:, None], patch)  # (n, N, p·q)
    counts = torch.stack([(cells == number).sum(2) for number in range(classes)], 2)
    return counts.argmax(2).masked_fill(counts.sum(2) == 0, IGNORE_INDEX)


def segmentation_metrics(confusion: Tensor) -> dict[str, float]:
    """Returns metric → value, each 0 to 1: miou, mean_accuracy, accuracy and majority_accuracy.

    ``miou`` is the mean intersection over union and ``mean_accuracy`` the mean accuracy, both over the classes that occur;
    ``accuracy`` is that of all patches, ``majority_accuracy`` that of always predicting the most frequent class.

    Args:
        confusion: (classes, classes), number of patches by their class (row) and predicted class (column).
    """
    confusion = confusion.double()
    correct, target, predicted = confusion.diagonal(), confusion.sum(1), confusion.sum(0)
    present = target > 0
    return {
        "miou": (correct / (target + predicted - correct))[present].mean().item(),
        "mean_accuracy": (correct / target)[present].mean().item(),
        "accuracy": (correct.sum() / confusion.sum()).item(),
        "majority_accuracy": (target.max() / confusion.sum()).item(),
    }


def _train(
    head: Head,
    tokens_at: Callable[[Tensor], Tensor],
    labels: Tensor,
    parameters: list[nn.Parameter],
    lr: float,
    epochs: int,
    seed: int,
) -> None:
    """Trains ``parameters`` in place with Adam, so that the head predicts the patch classes ``labels`` (n, N) from tokens.

    Args:
        tokens_at: Returns the patch tokens (B, N, D) of the training images at an index (B,).
        parameters: Parameters of the head, or of the head and the model.
        lr: Peak learning rate of the warm-up and cosine schedule.
        seed: Seed of the order of the images.
    """
    optimizer = torch.optim.Adam(parameters)
    generator = make_generator(seed)
    batches = [index for _ in range(epochs) for index in torch.randperm(len(labels), generator=generator).split(BATCH)]
    lrs = [warmup_cosine((step + 0.5) / len(batches), WARMUP, peak=lr) for step in range(len(batches))]
    for index in optimizer_steps(optimizer, batches, lrs):
        target = labels[index].flatten()
        loss = F.cross_entropy(head(tokens_at(index)).flatten(0, 1), target, ignore_index=IGNORE_INDEX, reduction="sum")
        (loss / (target != IGNORE_INDEX).sum().clamp_min(1)).backward()

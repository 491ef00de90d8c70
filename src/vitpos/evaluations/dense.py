"""Segmentation by patches: a linear head predicts the class of each patch from its token after the last block."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitpos.data import SEGMENTATION
from vitpos.data.segmentation_sets import IGNORE_INDEX, SegmentationSet
from vitpos.errors import InputError
from vitpos.evaluations.context import EvalContext, require_patches
from vitpos.evaluations.result import Result
from vitpos.patches import make_generator, patchify
from vitpos.training.loop import optimizer_steps
from vitpos.training.recipe import warmup_cosine

BATCH = 50  # scenes per step
HEAD_RATE, TUNED_RATE, WARMUP = 0.1, 0.001, 0.1  # peak learning rates, and the fraction of training before the peak


def dense(
    ctx: EvalContext,
    *,
    scenes: str = "digit_scenes",
    tuned: bool = False,
    epochs: int = 10,
    seed: int = 0,
) -> Result:
    """Segmentation by patches: a linear head predicts the class of each patch from its token after the last block.

    miou: mean intersection over union on the test scenes, over the classes that occur there. The intersection is the
    patches that have the class and are predicted as it, the union those that have it or are predicted as it.
    mean_accuracy: mean over the same classes of the fraction of their patches, 0 to 1, that are predicted correctly.
    This weighs rare classes like frequent ones. accuracy: fraction of all patches that are predicted correctly.
    commonest: accuracy of always predicting the most frequent class.
    The class of a patch is the most frequent class of its pixels, the lowest number in a tie. Pixels of value 255 have no
    class; patches of only such pixels are ignored.
    The head is initialized to zero and trained with Adam and cross-entropy on standardized tokens of the frozen model.

    Args:
        scenes: A segmentation set: ``digit_scenes``, or ``mask_folder(path='…')`` for your own images and masks. Scenes
            have the shape of the model's images; each split is cut to at most the size of the data's split.
        tuned: Then trains the head and a copy of the model together for ``epochs`` more, at a hundredth of the learning
            rate, in evaluation mode, so that drop-path and MJP are off.
        epochs: Number of epochs of training.
        seed: Seed of the order of the scenes.
    """
    model, data = require_patches(ctx.model, "dense"), ctx.data
    if epochs < 1:
        raise InputError(f"evaluation 'dense' got epochs={epochs}; train for 1 or more")
    segmentation: SegmentationSet = SEGMENTATION.build(scenes, data.shape)
    classes = segmentation.classes
    train, test = segmentation.train.head(len(data.train)), segmentation.test.head(len(data.test))
    body = deepcopy(model).eval()
    device = body.device

    def tokens(images: Tensor) -> Tensor:
        """Returns the patch tokens (B, N, D) after the last block."""
        x, pos = body.forward_tokens(data.normalize(images.to(device)))
        x = x[:, body.geometry.num_prefix :]
        if x.shape[1] != pos.index.shape[1]:
            raise InputError(
                "evaluation 'dense' is for models that keep a token for each patch, and this model has "
                f"{x.shape[1]} tokens for {pos.index.shape[1]} patches; leave it out for this model"
            )
        return x

    with torch.no_grad():
        frozen_tokens = torch.cat([tokens(images) for images in train.images.split(BATCH)])
    head = Head(frozen_tokens, classes)
    labels = patch_classes(train.masks, body.patch, classes).to(device)
    _learn(head, frozen_tokens.__getitem__, labels, list(head.parameters()), HEAD_RATE, epochs, seed)
    if tuned:
        both = [*head.parameters(), *body.parameters()]
        _learn(head, lambda index: tokens(train.images[index]), labels, both, TUNED_RATE, epochs, seed)
    with torch.no_grad():
        predicted = torch.cat([head(tokens(images)).argmax(2).cpu() for images in test.images.split(BATCH)])
    target = patch_classes(test.masks, body.patch, classes)
    valid = target != IGNORE_INDEX
    pairs = target[valid] * classes + predicted[valid]
    return Result(measured(pairs.bincount(minlength=classes**2).view(classes, classes)))


class Head(nn.Module):
    """A linear layer, initialized to zero, on tokens standardized with the mean and std of ``tokens`` (n, N, D)."""

    def __init__(self, tokens: Tensor, classes: int):
        super().__init__()
        flat = tokens.flatten(0, 1)
        self.mean, self.scale = flat.mean(0), flat.std(0, correction=0).clamp_min(1e-6)
        self.weight = nn.Parameter(flat.new_zeros(classes, flat.shape[1]))
        self.bias = nn.Parameter(flat.new_zeros(classes))

    def forward(self, tokens: Tensor) -> Tensor:
        """Maps tokens (…, D) to logits (…, classes)."""
        return F.linear((tokens - self.mean) / self.scale, self.weight, self.bias)


def patch_classes(masks: Tensor, patch: tuple[int, int], classes: int) -> Tensor:
    """Returns the most frequent class of each patch (n, N) of masks (n, height, width).

    Patches without any pixel of a class get IGNORE_INDEX.
    """
    cells = patchify(masks[:, None], patch)  # (n, N, p·q)
    counts = torch.stack([(cells == number).sum(2) for number in range(classes)], 2)
    return counts.argmax(2).masked_fill(counts.sum(2) == 0, IGNORE_INDEX)


def measured(table: Tensor) -> dict[str, float]:
    """Returns the metrics of a table (classes, classes) that counts patches by true (row) and predicted class."""
    table = table.double()
    correct, target, predicted = table.diagonal(), table.sum(1), table.sum(0)
    present = target > 0
    return {
        "miou": (correct / (target + predicted - correct))[present].mean().item(),
        "mean_accuracy": (correct / target)[present].mean().item(),
        "accuracy": (correct.sum() / table.sum()).item(),
        "commonest": (target.max() / table.sum()).item(),
    }


def _learn(
    head: Head,
    read: Callable[[Tensor], Tensor],
    labels: Tensor,
    parameters: list[nn.Parameter],
    rate: float,
    epochs: int,
    seed: int,
) -> None:
    """Trains ``parameters`` to predict the patch classes ``labels`` (n, N) from tokens.

    ``read`` returns the tokens (B, N, D) of the scenes at an index (B,).
    """
    optimizer = torch.optim.Adam(parameters)
    generator = make_generator(seed)
    batches = [index for _ in range(epochs) for index in torch.randperm(len(labels), generator=generator).split(BATCH)]
    rates = [warmup_cosine((step + 0.5) / len(batches), WARMUP, peak=rate) for step in range(len(batches))]
    for index in optimizer_steps(optimizer, batches, rates):
        target = labels[index].flatten()
        loss = F.cross_entropy(head(read(index)).flatten(0, 1), target, ignore_index=IGNORE_INDEX, reduction="sum")
        (loss / (target != IGNORE_INDEX).sum().clamp_min(1)).backward()

"""A class for every patch: what each token still knows of its own piece of the picture."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitpos.data import SEGMENTATION
from vitpos.data.dataset import Dataset
from vitpos.data.segmentation_sets import IGNORE_INDEX, SegmentationSet
from vitpos.errors import UserError
from vitpos.models.base import Classifier, PatchClassifier
from vitpos.patches import make_generator, patchify
from vitpos.training.recipe import warmup_cosine

BATCH = 50  # scenes in a step
HEAD_RATE, TUNED_RATE, WARMUP = 0.1, 0.001, 0.1  # the highest learning rates, and the share of training until they are


def dense(
    model: Classifier,
    data: Dataset,
    *,
    scenes: str = "digit_scenes",
    tuned: bool = False,
    epochs: int = 10,
    seed: int = 0,
) -> dict[str, float]:
    """Classes of patches told by a linear head that reads each patch's last token, on scenes it was not trained on.

    miou: the mean, over the classes that the test's patches have, of intersection over union: patches rightly given the
    class over those that have it or are given it. mean_accuracy: the mean over the same classes of the share of their
    patches, 0 to 1, told rightly. accuracy: the share of all patches told rightly; commonest: what it is for always
    answering the most frequent class.
    A patch has the class of most of its pixels, of several the first, not counting pixels without a class (255); a patch
    of only such pixels does not count. ``scenes``: ``digit_scenes``, or your own ``mask_folder(path='…')``, in the shape of
    the model's images, and never more than the data has images. The model stays as it is while the head learns, from zero,
    by Adam on the cross-entropy for ``epochs``, from tokens shifted and scaled by their mean and deviation; ``seed``
    orders the scenes. With ``tuned`` the head and a copy of the model then learn together for as many epochs, at a
    hundredth of the rate, the model's drop-path and puzzle off.
    """
    if not isinstance(model, PatchClassifier):
        raise UserError("evaluation 'dense' is for models with patches; leave it out for this one")
    if epochs < 1:
        raise UserError(f"evaluation 'dense' got epochs={epochs}; train for 1 or more")
    made: SegmentationSet = SEGMENTATION.build(scenes, data.shape)
    train, test = made.train.head(len(data.train)), made.test.head(len(data.test))
    body = deepcopy(model).eval()
    device = body.project.weight.device

    def tokens(images: Tensor) -> Tensor:
        """(B, N, D), of patches alone."""
        x, pos = body.tokens(data.normalize(images.to(device)))
        x = x[:, body.geometry.prefix :]
        if x.shape[1] != pos.cells.shape[1]:
            raise UserError(
                "evaluation 'dense' is for models that keep a token for each patch; leave it out for this one"
            )
        return x

    with torch.no_grad():
        first = torch.cat([tokens(images) for images in train.images.split(BATCH)])
    head = Head(first, made.classes)
    labels = patch_classes(train.masks, body.patch, made.classes).to(device)
    _learn(head, first.__getitem__, labels, list(head.parameters()), HEAD_RATE, epochs, seed)
    if tuned:
        both = [*head.parameters(), *body.parameters()]
        _learn(head, lambda index: tokens(train.images[index]), labels, both, TUNED_RATE, epochs, seed)
    with torch.no_grad():
        answers = torch.cat([head(tokens(images)).argmax(2).cpu() for images in test.images.split(BATCH)])
    truth = patch_classes(test.masks, body.patch, made.classes)
    known = truth != IGNORE_INDEX
    cells = truth[known] * made.classes + answers[known]
    return measured(cells.bincount(minlength=made.classes**2).view(made.classes, made.classes))


class Head(nn.Module):
    """A linear layer, of zeros to begin with, on tokens (…, D) shifted and scaled as some that are given."""

    def __init__(self, tokens: Tensor, classes: int):
        super().__init__()
        some = tokens.flatten(0, 1)
        self.mean, self.scale = some.mean(0), some.std(0, correction=0).clamp_min(1e-6)
        self.weight = nn.Parameter(some.new_zeros(classes, some.shape[1]))
        self.bias = nn.Parameter(some.new_zeros(classes))

    def forward(self, tokens: Tensor) -> Tensor:
        """(…, D) → (…, classes)."""
        return F.linear((tokens - self.mean) / self.scale, self.weight, self.bias)


def patch_classes(masks: Tensor, patch: tuple[int, int], classes: int) -> Tensor:
    """(n, height, width) → (n, N): the class of most pixels of each patch, or IGNORED where no pixel has one."""
    cells = patchify(masks[:, None], patch)  # (n, N, p·q)
    counts = torch.stack([(cells == number).sum(2) for number in range(classes)], 2)
    return counts.argmax(2).masked_fill(counts.sum(2) == 0, IGNORE_INDEX)


def measured(table: Tensor) -> dict[str, float]:
    """What a table (true class, class told) of patches comes to."""
    table = table.double()
    right, truth, told = table.diagonal(), table.sum(1), table.sum(0)
    present = truth > 0
    return {
        "miou": (right / (truth + told - right))[present].mean().item(),
        "mean_accuracy": (right / truth)[present].mean().item(),
        "accuracy": (right.sum() / table.sum()).item(),
        "commonest": (truth.max() / table.sum()).item(),
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
    """Trains parameters so that the head tells the classes (n, N) of what is ``read`` of the scenes at an index."""
    optimizer = torch.optim.Adam(parameters)
    draw = make_generator(seed)
    batches = [index for _ in range(epochs) for index in torch.randperm(len(labels), generator=draw).split(BATCH)]
    for step, index in enumerate(batches):
        optimizer.param_groups[0]["lr"] = warmup_cosine((step + 0.5) / len(batches), WARMUP, peak=rate)
        truth = labels[index].flatten()
        loss = F.cross_entropy(head(read(index)).flatten(0, 1), truth, ignore_index=IGNORE_INDEX, reduction="sum")
        optimizer.zero_grad()
        (loss / (truth != IGNORE_INDEX).sum().clamp_min(1)).backward()
        optimizer.step()

"""Claims that are decided on a data set, without training; each function is as those in `vitpos.claims.proofs`."""

from __future__ import annotations

import torch

from vitpos.claims.outcomes import Answer, Outcome
from vitpos.data.mnist import mnist
from vitpos.evaluations.context import EvalContext
from vitpos.evaluations.patch_overlap import patch_overlap
from vitpos.metrics.statistics import wilson_interval
from vitpos.models.minimal import MinimalAttention
from vitpos.training.recipe import Recipe


def shared_patches() -> dict[str, Outcome]:
    """Whether 6 and 9 share more of their patches than 1 and 8 do."""
    return _more_overlap((6, 9))


def shared_patches_of_4_and_7() -> dict[str, Outcome]:
    """Whether 4 and 7 share more of their patches than 1 and 8 do."""
    return _more_overlap((4, 7))


def loops_of_6_and_9() -> dict[str, Outcome]:
    """Whether the loop of a 6 is in the lower half of the image, and that of a 9 in the upper half.

    A loop is dark background that is not connected with the border of the image. Of the test images that have one, the
    fraction whose loop has its center in the expected half must be above one half, with its 95 % interval (Wilson).
    """
    split = mnist().test
    found = {}
    for digit, half, sign in ((6, "lower", 1), (9, "upper", -1)):
        loops = _enclosed(split.images[:][split.labels == digit][:, 0] < 64)  # (n, 28, 28)
        rows = torch.arange(28.0)[:, None] - 13.5
        heights = [(loop * rows).sum().item() for loop in loops.float() if loop.any()]
        inside, count = sum(sign * height > 0 for height in heights), len(heights)
        low, high = wilson_interval(inside, count)
        answer: Answer = "holds" if low > 0.5 else "does not hold" if high < 0.5 else "inconclusive"
        text = f"{inside / count:.1%} (95 % interval {low:.1%} to {high:.1%}) of {count} test images with a loop"
        found[f"{digit}, {half} half"] = Outcome(answer, f"{text}; required: above 50 %")
    return found


def _enclosed(dark: torch.Tensor) -> torch.Tensor:
    """Returns the dark pixels (n, height, width) that are not connected with the border, by four neighbors."""
    outside = torch.zeros_like(dark)
    outside[:, [0, -1]], outside[:, :, [0, -1]] = dark[:, [0, -1]], dark[:, :, [0, -1]]
    while True:
        grown = outside.clone()
        grown[:, 1:] |= outside[:, :-1]
        grown[:, :-1] |= outside[:, 1:]
        grown[:, :, 1:] |= outside[:, :, :-1]
        grown[:, :, :-1] |= outside[:, :, 1:]
        grown &= dark
        if grown.equal(outside):
            return dark & ~outside
        outside = grown


def _more_overlap(pair: tuple[int, int], max_images: int = 200) -> dict[str, Outcome]:
    """Whether two digits share more patches of 4×4 pixels than 1 and 8 do, by `patch_overlap` without blank patches.

    Holds if the 95 % bootstrap interval of the difference of overlaps lies above 0, does not hold if it lies below.

    Args:
        pair: The two digits.
        max_images: Number of test images, and of training images, of each digit.
    """
    data = mnist()
    model = MinimalAttention(data.shape, len(data.classes), "none", patch=4)
    found = patch_overlap(
        EvalContext(model, data, Recipe()), pair=pair, other_pair=(1, 8), max_images=max_images
    ).numbers
    low, high = found["difference_low"], found["difference_high"]
    answer: Answer = "holds" if low > 0 else "does not hold" if high < 0 else "inconclusive"
    overlaps = f"overlap {found['overlap']:.3f} ({pair[0]} and {pair[1]}) and {found['other_overlap']:.3f} (1 and 8)"
    difference = f"difference {found['difference']:+.3f} (95 % interval {low:.3f} to {high:.3f})"
    return {"": Outcome(answer, f"{overlaps}, {difference}, {max_images} test images of each digit; required: above 0")}

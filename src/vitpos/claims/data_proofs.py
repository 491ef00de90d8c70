"""Claims that are decided on a data set, without training; each function is as those in `vitpos.claims.proofs`."""

from __future__ import annotations

from vitpos.claims.outcomes import Answer, Outcome
from vitpos.data.mnist import mnist
from vitpos.evaluations.context import EvalContext
from vitpos.evaluations.patch_overlap import patch_overlap
from vitpos.models.minimal import MinimalAttention
from vitpos.training.recipe import Recipe


def shared_patches(max_images: int = 200) -> dict[str, Outcome]:
    """Whether 6 and 9 share more of their patches of 4×4 pixels than 1 and 8 do, by `patch_overlap` without blank patches.

    Holds if the 95 % bootstrap interval of the difference of overlaps lies above 0, does not hold if it lies below.

    Args:
        max_images: Number of test images, and of training images, of each digit.
    """
    data = mnist()
    model = MinimalAttention(data.shape, len(data.classes), "none", patch=4)
    found = patch_overlap(
        EvalContext(model, data, Recipe()), pair=(6, 9), other_pair=(1, 8), max_images=max_images
    ).numbers
    low, high = found["difference_low"], found["difference_high"]
    answer: Answer = "holds" if low > 0 else "does not hold" if high < 0 else "inconclusive"
    overlaps = f"overlap {found['overlap']:.3f} (6 and 9) and {found['other_overlap']:.3f} (1 and 8)"
    difference = f"difference {found['difference']:+.3f} (95 % interval {low:.3f} to {high:.3f})"
    return {"": Outcome(answer, f"{overlaps}, {difference}, {max_images} test images of each digit; required: above 0")}

"""Claims that are decided by calculation: identities that hold for any weights, and counterexamples.

Each function returns a dictionary: label of a statement → whether it holds, with the numbers.
"""

from __future__ import annotations

import torch

from vitpos.block_masks import BLOCK_OPTIONS, block_mask
from vitpos.claims.data_proofs import shared_patches as shared_patches
from vitpos.claims.outcomes import Answer, Outcome
from vitpos.metrics.statistics import wilson_interval
from vitpos.models.vit import ViT
from vitpos.patches import make_generator, permute_patches
from vitpos.positions import Positions
from vitpos.privacy.client import client_gradient

GRID = (3, 5)


def bag_of_patches() -> dict[str, Outcome]:
    """Whether a ViT without positions gives the same logits for any order of the patches of an image."""
    pooled, _, _ = _permuted_differences()
    return {"": _at_most(pooled, "largest difference of a logit between an image and its permuted patches")}


def equivariance() -> dict[str, Outcome]:
    """Which outputs of attention without positions are unchanged, or move with the patches, if patches are permuted."""
    pooled, moved, unmoved = _permuted_differences()
    return {
        "each token moves with its patch (equivariant)": _at_most(
            moved, "largest difference of a token and its patch's"
        ),
        "the pooled output is the same (invariant)": _at_most(pooled, "largest difference of a logit"),
        "the sequence of tokens is the same": _at_most(unmoved, "largest difference of a token and that of its slot"),
    }


def empty_masks(samples: int = 20_000) -> dict[str, Outcome]:
    """Whether the fraction of empty masks agrees with a first count: 136 of 800 masks (17 %), with its 95 % interval.

    The masks are those of the published sampler on a 14×14 grid at ratio 0.03.

    Args:
        samples: Number of masks.
    """
    masks = block_mask((14, 14), 0.03, batch=samples, generator=make_generator(100), **BLOCK_OPTIONS["published"])
    empty = int((~masks.any(1)).sum())
    (low, high), (least, most) = wilson_interval(empty, samples), wilson_interval(136, 800)
    found = f"{empty / samples:.2%} (95 % interval {low:.2%} to {high:.2%}) of {samples} masks are empty"
    answer: Answer = "holds" if least <= empty / samples <= most else "does not hold"
    return {"": Outcome(answer, f"{found}; required: {least:.1%} to {most:.1%}")}


def gradients_of_permuted_images() -> dict[str, Outcome]:
    """Whether images that differ by the order of their patches have the same gradient of the loss, by encoding."""
    swapped = torch.arange(GRID[0] * GRID[1])
    swapped[[1, 4]] = swapped[[4, 1]]
    hidden = torch.isin(torch.arange(GRID[0] * GRID[1]), torch.tensor([1, 4, 7]))[None]
    what = "largest change of the gradient, relative to its largest entry"
    return {
        "without positions": _at_most(_gradient_change("none", swapped), what),
        "with learned positions": _at_most(_gradient_change("learned", swapped), what),
        "with MJP, patches with hidden positions": _at_most(_gradient_change("learned + mjp", swapped, hidden), what),
        "with MJP, other patches": _at_most(_gradient_change("learned + mjp", swapped, ~hidden), what),
    }


def localization_loss() -> dict[str, Outcome]:
    """Whether the localization loss of the published code, a mean over row and column, is eq. 2 of MJP, their sum."""
    values = []
    for reduction in ("mean", "sum"):
        model = _random_model(f"learned + mjp(mask_ratio=0.5, localization_reduction='{reduction}')")
        with torch.no_grad():
            values.append(float(model.encoding.penalty(Positions.from_grid(GRID))))
    text = f"code {values[0]:.6g}, eq. 2 {values[1]:.6g}, ratio {values[0] / values[1]:.6g}; required: 1"
    return {"": Outcome("holds" if abs(values[0] / values[1] - 1) < 1e-9 else "does not hold", text)}


def _gradient_change(encoding: str, order: torch.Tensor, hidden: torch.Tensor | None = None) -> float:
    """Returns the largest change of the gradient if the patches of an image are permuted, relative to its largest entry.

    Args:
        encoding: Spec of the encoding.
        order: Permutation (N,) of the patches.
        hidden: Mask (1, N) of the patches whose positions the model does not get; none by default.
    """
    model = _random_model(encoding)
    image, label = torch.randn(1, 3, 12, 20, dtype=torch.float64), torch.tensor([3])
    positions = Positions.from_grid(GRID) if hidden is None else Positions.from_grid(GRID).hide(hidden)
    one, other = (client_gradient(model, x, label, positions) for x in (image, permute_patches(image, GRID, order)))
    largest = max(gradient.abs().max().item() for gradient in one.values())
    return max((one[name] - other[name]).abs().max().item() for name in one) / largest


def _random_model(encoding: str) -> ViT:
    """Returns a small ViT in float64 and evaluation mode, on 3×5 patches, the same weights at every call."""
    with torch.random.fork_rng():
        torch.manual_seed(100)
        model = ViT((3, 12, 20), 7, encoding, patch=4, dim=32, depth=3, heads=4, pool="mean", weight_init="xavier")
    return model.double().eval()


def _permuted_differences() -> tuple[float, float, float]:
    """Returns the largest differences of outputs between images and images with permuted patches, without positions.

    The three are those of logits, of tokens compared with the same patch, and of tokens compared with the same slot of
    the grid. The model is a ViT in float64 with random weights on a grid of 3×5 patches.
    """
    with torch.random.fork_rng(), torch.no_grad():
        model = _random_model("none")
        torch.manual_seed(100)
        images = torch.randn(4, 3, 12, 20, dtype=torch.float64)
        order = torch.randperm(GRID[0] * GRID[1])
        permuted = permute_patches(images, GRID, order)
        tokens, others = (model.forward_tokens(one)[0] for one in (images, permuted))
        logits = (model(images) - model(permuted)).abs().max()
    moved, unmoved = (tokens[:, order] - others).abs().max(), (tokens - others).abs().max()
    return logits.item(), moved.item(), unmoved.item()


def _at_most(difference: float, what: str, bound: float = 1e-9) -> Outcome:
    """Returns that a difference of float64 numbers is rounding error, or not."""
    text = f"{what}: {difference:.2g}; required: at most {bound:g}"
    return Outcome("holds" if difference <= bound else "does not hold", text)

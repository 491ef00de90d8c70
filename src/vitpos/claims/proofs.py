"""Claims that are decided by calculation: identities that hold for any weights, and counterexamples.

Each function returns a dictionary: label of a statement → whether it holds, with the numbers.
"""

from __future__ import annotations

import torch

from vitpos.block_masks import BLOCK_OPTIONS, block_mask
from vitpos.claims.data_proofs import loops_of_6_and_9 as loops_of_6_and_9
from vitpos.claims.data_proofs import shared_patches as shared_patches
from vitpos.claims.data_proofs import shared_patches_of_4_and_7 as shared_patches_of_4_and_7
from vitpos.claims.outcomes import Answer, Outcome
from vitpos.encodings import ENCODINGS
from vitpos.encodings.base import Geometry
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


def broken_symmetry() -> dict[str, Outcome]:
    """Whether the logits of a ViT with a learned table change if the patches of an image are permuted."""
    pooled, _, _ = _permuted_differences("learned")
    text = (
        f"largest difference of a logit between an image and its permuted patches: {pooled:.2g}; required: above 1e-6"
    )
    return {"": Outcome("holds" if pooled > 1e-6 else "does not hold", text)}


def table_shape() -> dict[str, Outcome]:
    """Whether a learned table for a 14×14 grid and CLS has 197 × 768 numbers, by counting parameters."""
    encoding = ENCODINGS.build("learned(prefix_embed=True)", Geometry(768, 12, 12, (14, 14), 1))
    count = sum(parameter.numel() for parameter in encoding.parameters())
    text = f"{count:,} parameters; required: 197 × 768 = {197 * 768:,}"
    return {"": Outcome("holds" if count == 197 * 768 else "does not hold", text)}


def content_of_biases() -> dict[str, Outcome]:
    """Whether the bias of two patches depends on what is in the patches, for a relative bias and for SaPE2."""
    changes = {}
    pos = Positions.from_grid(GRID)
    for spec in ("relative", "sape2"):
        with torch.random.fork_rng(), torch.no_grad():
            torch.manual_seed(100)
            encoding = ENCODINGS.build(spec, Geometry(32, 4, 1, GRID)).double()
            for parameter in encoding.parameters():
                parameter.normal_()
            q, k, other_q, other_k = torch.randn(4, 1, 4, GRID[0] * GRID[1], 8, dtype=torch.float64)
            change = encoding.bias(q, k, pos, 0) - encoding.bias(other_q, other_k, pos, 0)
        changes[spec] = change.abs().max().item()
    text = f"largest change of the bias of SaPE2 with other tokens: {changes['sape2']:.2g}; required: above 1e-6"
    return {
        "a relative bias does not depend on content": _at_most(changes["relative"], "largest change with other tokens"),
        "the bias of SaPE2 does": Outcome("holds" if changes["sape2"] > 1e-6 else "does not hold", text),
    }


def shifted_biases() -> dict[str, Outcome]:
    """Whether the bias of SaPE2 moves with the tokens in a cyclic shift by one patch, by axis of counts and of the shift.

    In counts along rows, each patch counts the patches of its own row.
    """
    found = {}
    pos = Positions.from_grid(GRID)
    for axis in ("rows", "columns"):
        with torch.random.fork_rng(), torch.no_grad():
            torch.manual_seed(100)
            encoding = ENCODINGS.build(f"sape2(axes='{axis}')", Geometry(32, 4, 1, GRID)).double()
            for parameter in encoding.parameters():
                parameter.normal_()
            q, k = torch.randn(2, 1, 4, GRID[0] * GRID[1], 8, dtype=torch.float64)
            bias = encoding.bias(q, k, pos, 0)
            for direction, dim in (("down", 0), ("to the right", 1)):
                order = torch.arange(GRID[0] * GRID[1]).view(GRID).roll(1, dim).flatten()
                change = encoding.bias(q[:, :, order], k[:, :, order], pos, 0) - bias[:, :, order][..., order]
                what = "largest difference, relative to the largest bias"
                found[f"counts along {axis}, shift {direction}"] = _at_most(
                    (change.abs().max() / bias.abs().max()).item(), what
                )
    return found


def position_gradient() -> dict[str, Outcome]:
    """Whether the gradient of the position table is that of the tokens to which it is added, ∂l/∂E_pos = ∂l/∂z."""
    return {
        "one image": _at_most(_table_gradient_error("learned", 1), "largest difference, relative"),
        "a batch of two images": _at_most(_table_gradient_error("learned", 2), "largest difference, relative"),
        "one image, with MJP's localization loss": _at_most(
            _table_gradient_error("learned + mjp(mask_ratio=0.5)", 1), "largest difference, relative"
        ),
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
    model, image, label = _random_model(encoding), _random_images(1), torch.tensor([3])
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


def _random_images(count: int) -> torch.Tensor:
    """Returns images (count, 3, 12, 20) in float64, the same at every call."""
    return torch.randn(count, 3, 12, 20, dtype=torch.float64, generator=make_generator(100))


def _table_gradient_error(encoding: str, images: int) -> float:
    """Returns the largest difference of the gradients of the loss by table and by tokens, relative to the largest entry.

    The loss is cross-entropy plus the extra loss of the encoding, summed over the images; the tokens (images, N, D) are
    the sum of patch embedding and table, and their gradient is that of the first image.
    """
    model = _random_model(encoding)
    tokens, pos = model.embed_patches(_random_images(images))
    tokens.retain_grad()
    features = model.pool_tokens(model.forward_blocks(tokens, pos))
    loss = torch.nn.functional.cross_entropy(model.head(features), torch.arange(images), reduction="sum")
    (loss + model.encoding.penalty(pos)).backward()
    (table,) = [p.grad for name, p in model.encoding.named_parameters() if name.rpartition(".")[2] == "table"]
    assert table is not None and tokens.grad is not None
    difference = table.flatten(0, -2) - tokens.grad[0]
    return (difference.abs().max() / tokens.grad.abs().max()).item()


def _permuted_differences(encoding: str = "none") -> tuple[float, float, float]:
    """Returns the largest differences of outputs between images and images with permuted patches.

    The three are those of logits, of tokens compared with the same patch, and of tokens compared with the same slot of
    the grid. The model is a ViT in float64 with random weights on a grid of 3×5 patches.
    """
    with torch.random.fork_rng(), torch.no_grad():
        model = _random_model(encoding)
        images = _random_images(4)
        order = torch.randperm(GRID[0] * GRID[1], generator=make_generator(100))
        permuted = permute_patches(images, GRID, order)
        tokens, others = (model.forward_tokens(one)[0] for one in (images, permuted))
        logits = (model(images) - model(permuted)).abs().max()
    moved, unmoved = (tokens[:, order] - others).abs().max(), (tokens - others).abs().max()
    return logits.item(), moved.item(), unmoved.item()


def _at_most(difference: float, what: str, bound: float = 1e-9) -> Outcome:
    """Returns that a difference of float64 numbers is rounding error, or not."""
    text = f"{what}: {difference:.2g}; required: at most {bound:g}"
    return Outcome("holds" if difference <= bound else "does not hold", text)

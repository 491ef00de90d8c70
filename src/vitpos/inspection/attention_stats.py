"""Where attention goes: mean attention, how far it reaches, how heads differ, rollout, and maps of what is looked at."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from vitpos.data.base import Dataset
from vitpos.errors import UserError
from vitpos.inspection._batches import grid_seen, pictures
from vitpos.models.activations import Attending, look_inside, on_one_grid
from vitpos.models.base import Classifier, PatchClassifier
from vitpos.positions import Positions

Heard = Callable[[int, Tensor], None]  # a layer, and its logits among patches (B, H, N, N)


def hear_logits(
    model: PatchClassifier, data: Dataset, *hear: Heard, limit: int | None, seed: int = 0, shuffled: bool = False
) -> int:
    """Tells of the logits among patches, without prefix tokens, of all layers for ``limit`` test images; says how many.

    Several may ``hear`` in one pass. Images and ``shuffled`` as for :func:`pictures`.
    """

    def tell(attending: Attending) -> None:
        prefix = attending.prefix
        logits = attending.logits()[..., prefix:, prefix:]
        for one in hear:
            one(attending.layer, logits)

    images = 0
    with torch.inference_mode():
        for batch in pictures(model, data, limit=limit, seed=seed, shuffled=shuffled):
            look_inside(model, batch, attention=tell)
            images += len(batch)
    return images


class AttentionSums:
    """Sums over images of attention among patches (depth, H, N, N), in float64."""

    def __init__(self, model: PatchClassifier, count: int):
        geometry = model.geometry
        self.total = torch.zeros(geometry.depth, geometry.heads, count, count, dtype=torch.float64)
        self.total = self.total.to(model.project.weight.device)

    def add(self, layer: int, logits: Tensor) -> None:
        """Another batch of logits (B, H, N, N), whose rows are scaled as if there were no prefix tokens."""
        self.total[layer] += logits.softmax(-1).sum(0, dtype=torch.float64)


def mean_attention(model: Classifier, data: Dataset, *, limit: int | None = 256, seed: int = 0) -> Tensor:
    """(depth, H, N, N): how much each patch takes of each other one, the mean over ``limit`` test images, in float64.

    Prefix tokens are left out, as queries and as keys, and what remains of each row is scaled to sum to 1 in each image.
    """
    seen = on_one_grid(model, "mean attention")
    sums = AttentionSums(seen, math.prod(grid_seen(seen, data)))
    images = hear_logits(seen, data, sums.add, limit=limit, seed=seed)
    return (sums.total / images).cpu()


def distances(grid: tuple[int, int], patch: tuple[int, int]) -> Tensor:
    """(N, N): pixels between the centres of every two patches of a grid, in float64."""
    steps = Positions.of(grid).offsets()[0].double() * torch.tensor(patch, dtype=torch.float64)
    return steps.norm(dim=-1)


def attention_distance(attention: Tensor, grid: tuple[int, int], patch: tuple[int, int]) -> Tensor:
    """Attention (…, N, N) to (…): the mean over patches of Σ_j a_ij·‖p_i − p_j‖₂, in pixels (ViT's Figure 7).

    It is linear in attention: of a mean over images it is the mean of the images' distances.
    """
    return (attention * distances(grid, patch)).sum(-1).mean(-1)


def uniform_distance(grid: tuple[int, int], patch: tuple[int, int]) -> float:
    """The attention distance, in pixels, of whoever looks at all patches alike: about .52 of the side of a square."""
    return distances(grid, patch).mean().item()


def head_diversity(attention: Tensor) -> Tensor:
    """Attention (…, H, N, N) to (…): how differently the heads of a layer look, in bits from 0 (alike) to 1.

    The Jensen–Shannon divergence between the attention of two heads, averaged over queries and over all pairs of heads.
    Given the mean attention over images it is about where heads look in all images; given each image's own, and averaged
    over images afterwards, it also has what heads look at in some: it is never less than the former. Of one head there are
    no pairs, and the answer is NaN.
    """
    heads = attention.shape[-3]
    if heads < 2:
        return attention.new_full(attention.shape[:-3], math.nan)
    alone = _entropy(attention)  # (…, H)
    first, second = torch.triu_indices(heads, heads, 1)
    between = [
        _entropy((attention[..., a, :, :] + attention[..., b, :, :]) / 2) - (alone[..., a] + alone[..., b]) / 2
        for a, b in zip(first.tolist(), second.tolist(), strict=True)
    ]
    return torch.stack(between).mean(0)


def _entropy(attention: Tensor) -> Tensor:
    """(…, N, N) to (…): in bits, the mean over queries."""
    return -torch.xlogy(attention, attention).sum(-1).mean(-1) / math.log(2)


def reading(model: PatchClassifier, tokens: int) -> Tensor:
    """(T,): how much of each of the tokens after the last layer the head reads: CLS alone, or all patches alike."""
    one_by_one = torch.eye(tokens, device=model.project.weight.device)[None]
    return model.read(one_by_one)[0]


def attention_rollout(model: Classifier, images: Tensor) -> Tensor:
    """Normalised images (B, C, height, width) to maps (B, R, C) of how attention carries patches into the answer.

    Abnar & Zuidema (ACL 2020): in each layer the mean over heads of attention and, as much of it, the token itself,
    ½(A + I); the layers multiplied; the row that the head reads, which is that of CLS or the mean over patches. What
    comes from prefix tokens is left out, so that a map may sum to less than 1.
    """
    seen = on_one_grid(model, "attention rollout")
    rolled: list[Tensor] = []

    def multiply(attending: Attending) -> None:
        weights = attending.weights().mean(1)  # (B, T, T)
        step = (weights + torch.eye(weights.shape[-1], device=weights.device)) / 2
        step = step / step.sum(-1, keepdim=True)
        rolled[:] = [step @ rolled[0] if rolled else step]

    seen.eval()
    with torch.inference_mode():
        look_inside(seen, images, attention=multiply)
        return _as_maps(seen, images, rolled[0])


def attention_maps(
    model: Classifier, images: Tensor, *, layers: Sequence[int] = (-1,), heads: Sequence[int] | None = None
) -> Tensor:
    """Normalised images (B, C, height, width) to maps (B, layers, heads, R, C) of what is looked at (MJP's Figure 8).

    In each of the ``layers`` (from 0, or from −1 backwards) and ``heads`` (all unless named): how much the tokens that the
    head of the model reads take of each patch, which is what CLS looks at or, in pooled models, the mean over patches.
    What goes to prefix tokens is left out, so that a map may sum to less than 1. Other layers' attention is not computed.
    """
    seen = on_one_grid(model, "a map of attention")
    chosen = _chosen("layers", layers, seen.geometry.depth)
    wanted = _chosen("heads", range(seen.geometry.heads) if heads is None else heads, seen.geometry.heads)
    found: dict[int, Tensor] = {}

    def keep(attending: Attending) -> None:
        if attending.layer in chosen:
            found[attending.layer] = _as_maps(seen, images, attending.weights()[:, wanted])

    seen.eval()
    with torch.inference_mode():
        look_inside(seen, images, attention=keep)
    return torch.stack([found[layer] for layer in chosen], 1)


def _as_maps(model: PatchClassifier, images: Tensor, weights: Tensor) -> Tensor:
    """Attention of all tokens (…, T, T) as what is read of it, on the grid: (…, R, C)."""
    grid = model.positions(images).grid
    return (reading(model, weights.shape[-1]) @ weights)[..., -grid[0] * grid[1] :].unflatten(-1, grid).cpu()


def _chosen(name: str, numbers: Sequence[int], count: int) -> list[int]:
    if not numbers or not all(-count <= number < count for number in numbers):
        raise UserError(f"{name}={list(numbers)} are not in a model that has {count}; choose from 0 to {count - 1}")
    return [number % count for number in numbers]

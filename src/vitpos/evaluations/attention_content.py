"""How attention depends on content: diversity of heads, share of content in the logits, attention to unlike neighbors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from vitpos.evaluations.context import NO_PATCHES, EvalContext
from vitpos.evaluations.result import Result
from vitpos.inspection.attention_summary import summarize_attention
from vitpos.inspection.content_gates import bias_content_correlation, counting_part
from vitpos.inspection.neighbor_attention import neighbor_attention as compare_neighbors
from vitpos.models.base import Classifier, PatchClassifier

WINDOWED = "attention is windowed, and these numbers need attention over all patches of one grid"
NOT_COUNTING = "the encoding does not count patches by content, as sape2 and cope do"


def attention_heads(ctx: EvalContext, *, max_images: int | None = 256, seed: int = 0) -> Result:
    """Diversity of attention heads, and the share of content in the attention logits between patches (MJP, Figure 8).

    All values are means over layers, and by layer. head_diversity: Jensen–Shannon divergence, 0 to 1 bit, between the
    attention of two heads averaged over images, mean over queries and pairs of heads. head_diversity_per_image: the same
    divergence in each of the first 64 images; it also includes differences that depend on content. Both are undefined for
    one head. content_share: fraction of the variance of the logits, 0 to 1, that is not due to the pair of positions, on
    images whose patches are permuted; it can slightly exceed 1 because it is unbiased. content_share_unshuffled: the same
    on the original images, where the mean content of a position counts as position. attention_distance: mean distance
    between query and key in pixels, weighted by attention.

    Args:
        max_images: Number of random test images, 2 or more; None for all.
        seed: Seed of the images and permutations.
    """
    if reason := _reason(ctx.model):
        return Result(reason=reason)
    numbers = summarize_attention(ctx.model, ctx.data, limit=max_images, seed=seed).numbers()
    undefined = [math.nan] * len(_layers(numbers["position_share"]))
    return _by_layer(
        {
            "head_diversity": _layers(numbers.get("head_diversity", undefined)),
            "head_diversity_per_image": _layers(numbers.get("head_diversity_per_image", undefined)),
            "content_share": [1 - share for share in _layers(numbers["position_share"])],
            "content_share_unshuffled": [1 - share for share in _layers(numbers["position_share_unshuffled"])],
            "attention_distance": _layers(numbers["attention_distance"]),
        }
    )


def bias_content(ctx: EvalContext, *, max_images: int | None = 256, seed: int = 0) -> Result:
    """Correlation of the bias of SaPE2 or CoPE with the similarity of patches at equal offset (SaPE2, Figure 4).

    correlation: correlation, −1 to 1, between the bias that is added to the logit of two patches and the cosine
    similarity of their tokens, over the pairs of patches of an image. Both are centered on their mean over the pairs with
    the same |Δrow| and |Δcolumn|, so that distance cannot contribute. Mean over images, heads and layers, and by layer.
    It is positive if similar patches get a larger bias. Compare with a model of ``train.epochs=0``, which has the same
    initial weights.

    Args:
        max_images: Number of random test images; None for all.
        seed: Seed of the images.
    """
    if reason := _reason(ctx.model):
        return Result(reason=reason)
    assert isinstance(ctx.model, PatchClassifier)
    if counting_part(ctx.model.encoding) is None:
        return Result(reason=NOT_COUNTING)
    found = bias_content_correlation(ctx.model, ctx.data, limit=max_images, seed=seed)
    return _by_layer({"correlation": found.mean.nanmean(1).tolist()})


def neighbor_attention(
    ctx: EvalContext, *, fraction: float = 0.25, max_images: int | None = 256, seed: int = 0
) -> Result:
    """Attention to horizontally or vertically adjacent patches with similar and with different pixels.

    like, unlike: attention between adjacent patches whose pixels are similar (different), in units of uniform attention:
    1 if a patch attends to all patches equally; mean over pairs, heads and images. ratio: unlike / like; below 1 if
    neighbors with different content get less attention than those with similar content. All are means over layers, and
    by layer. Pairs are chosen by the pixels of each image, so they are the same for all models with the same patch size.

    Args:
        fraction: Fraction of the adjacent pairs of an image, those with the largest distance of pixels, that are
            unlike; the same fraction, with the smallest distance, is like.
        max_images: Number of random test images; None for all.
        seed: Seed of the images.
    """
    if reason := _reason(ctx.model):
        return Result(reason=reason)
    found = compare_neighbors(ctx.model, ctx.data, fraction=fraction, limit=max_images, seed=seed)
    ratio = found.unlike / found.like
    return _by_layer({"like": found.like.tolist(), "unlike": found.unlike.tolist(), "ratio": ratio.tolist()})


def _reason(model: Classifier) -> str:
    """Returns why a model has no attention over all patches, or "" if it has."""
    if not isinstance(model, PatchClassifier):
        return NO_PATCHES
    return WINDOWED if model.windowed else ""


def _layers(values: float | list[float]) -> list[float]:
    assert isinstance(values, list)
    return values


def _by_layer(metrics: Mapping[str, Sequence[float]]) -> Result:
    """Returns metric → mean over layers as numbers, and metric → {layer from 1: value} as curves."""
    numbers = {name: sum(values) / len(values) for name, values in metrics.items()}
    curves = {name: {float(n): value for n, value in enumerate(values, 1)} for name, values in metrics.items()}
    return Result(numbers, curves=curves)

"""Inspects a model on test images: how much its tokens, attention logits and attention depend on position, by layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vitpos.data.dataset import Dataset
from vitpos.inspection._batches import image_grid
from vitpos.inspection.attention_stats import attention_maps, attention_rollout
from vitpos.inspection.attention_summary import AttentionSummary, summarize_attention
from vitpos.inspection.content_gates import GateMaps, bias_content_correlation, counting_part, gates_from_position
from vitpos.inspection.linear_probe import Probe, probe_positions
from vitpos.inspection.logits import logit_contrasts
from vitpos.inspection.section import Figure, Section
from vitpos.models.base import Classifier, PatchClassifier

SHOWN_IMAGES = 4  # test images on which attention is drawn


@dataclass(frozen=True)
class LayerSummary(AttentionSummary):
    """Measures of each layer of a model: position in the tokens, and those of `AttentionSummary`.

    Args:
        probes: scores of linear regressions from tokens to row and column, depth + 1: for the input of the first block,
            then for the output of each block.
    """

    probes: list[Probe]  # depth + 1: the input of the first block, then the output of each block

    def numbers(self) -> dict[str, float | list[float]]:
        """Returns name → one value per layer (mean over heads), or a single number.

        probe_r2: R² of a linear regression of row and column on the tokens that enter the first block and that each
        block returns, with the patches of each image permuted; 0 is chance. probe_standard_error: standard error of
        probe_r2 over the images on which the regression is tested, a fifth of all. probe_error: mean absolute error of
        the regression, in patches; probe_chance: the error of a constant predictor. position_share: fraction of the
        variance of the attention logits explained by the pair of positions, with the patches of each image permuted;
        unbiased, so it can be slightly negative. position_share_unshuffled: the same on the original images, where the
        average content at a position counts too. attention_distance: mean distance between query and key, weighted by
        attention, in pixels; attention_distance_uniform: that of uniform attention. head_diversity: Jensen–Shannon
        divergence, 0 to 1 bit, between the mean attention of two heads, averaged over queries and pairs of heads;
        absent for a single head. head_diversity_per_image: the same divergence computed in each image, mean over the
        first 64 images; it exceeds head_diversity if heads differ depending on the content of the image.
        """
        return {
            "probe_r2": [probe.r2 for probe in self.probes],
            "probe_standard_error": [probe.standard_error for probe in self.probes],
            "probe_error": [probe.error for probe in self.probes],
            "probe_chance": self.probes[0].chance,
            **super().numbers(),
        }


def summarize_layers(model: Classifier, data: Dataset, *, limit: int | None = 500, seed: int = 0) -> LayerSummary:
    """Returns linear probes, logit variances and mean attention of each layer, over ``limit`` test images (None: all).

    The images are sampled with ``seed``.
    """
    attention = summarize_attention(model, data, limit=limit, seed=seed)
    return LayerSummary(**vars(attention), probes=probe_positions(model, data, limit=limit, seed=seed))


def inspect_model(
    model: PatchClassifier, data: Dataset, *, images: int = 256, shown: Dataset | None = None, seed: int = 0
) -> Section:
    """Runs a model with global attention on test images; returns numbers and figures as the section ``model``.

    The numbers are those of :meth:`LayerSummary.numbers`, such as probe_r2, position_share and attention_distance; the
    last two are also given by head. logit_contrasts: differences of mean logits on images with permuted patches, such
    as adjacent pairs minus all other pairs, by layer. bias_content_correlation: for CoPE and SaPE2, whose positions are
    sums of content-dependent gates, the partial correlation of bias and content similarity at equal offsets, by layer
    and head.

    Args:
        images: number of test images, sampled with ``seed``.
        shown: data set whose test images attention is drawn on; a few test images of ``data`` by default.
    """
    layers = summarize_layers(model, data, limit=images, seed=seed)
    grid = image_grid(model, data)
    numbers: dict[str, Any] = layers.numbers() | {
        "images": layers.unshuffled.images,
        "position_share_by_head": layers.shuffled.position_share.tolist(),
        "attention_distance_by_head": layers.attention_distance.tolist(),
        "logit_contrasts": logit_contrasts(layers.shuffled.mean, grid),
    }
    if counting_part(model.encoding) is not None:
        correlation = bias_content_correlation(model, data, limit=images, seed=seed)
        numbers["bias_content_correlation"] = {"mean": correlation.mean.tolist(), "std": correlation.std.tolist()}
    figures = [
        _position_figure(layers),
        _distance_figure(layers.attention_distance, layers.attention_distance_uniform),
        *_mean_figures(layers, grid),
        *_image_figures(model, data.sample_test(SHOWN_IMAGES, seed=seed) if shown is None else shown, grid),
    ]
    return Section("model", numbers, tuple(figures))


def _position_figure(layers: LayerSummary) -> Figure:
    series = {
        "position from tokens, R²": [(float(n), one.r2, one.standard_error) for n, one in enumerate(layers.probes)]
    }
    for name, part in {"logits, shuffled": layers.shuffled, "logits, unshuffled": layers.unshuffled}.items():
        series[name] = [(n + 1.0, value, 0.0) for n, value in enumerate(part.position_share.nanmean(1).tolist())]
    limits = -0.05, 1.05  # the same for every model, so that figures can be compared
    data: dict[str, Any] = {
        "series": series,
        "title": "Position by layer",
        "x": "layer (0: input)",
        "y": "R² or fraction of variance",
    }
    caption = (
        "R² of a linear probe of the position in the tokens (band: standard error over images), and fraction of the "
        "variance of the logits explained by positions, by layer."
    )
    return Figure("position-by-layer", "lines", data | {"highlighted": list(series), "limits": limits}, caption)


def _distance_figure(distance: Tensor, uniform: float) -> Figure:
    numbers = [float(layer) for layer in range(1, len(distance) + 1)]
    curves = {f"head {head}": one for head, one in enumerate(distance.mT.tolist(), 1)}
    curves |= {"uniform": [uniform] * len(numbers), "mean": distance.mean(1).tolist()}
    series = {name: [(x, y, 0.0) for x, y in zip(numbers, curve, strict=True)] for name, curve in curves.items()}
    data: dict[str, Any] = {
        "series": series,
        "title": "Attention distance",
        "x": "layer",
        "y": "pixels",
        "dashed": "uniform",
    }
    limits = 0.0, 1.3 * uniform  # the same for every model on this grid
    caption = "Attention distance by head (gray), its mean over heads, and that of uniform attention (dashed)."
    data |= {"highlighted": ["mean", "uniform"], "limits": limits}
    return Figure("attention-distance", "lines", data, caption)


def _mean_figures(layers: LayerSummary, grid: tuple[int, int]) -> list[Figure]:
    """Returns two figures, of mean logits and of mean attention, for the layer whose logits depend most on position.

    Means are over heads and images; a figure has one map per query position. ``layers`` holds the measures of all
    layers.
    """
    layer = int(layers.shuffled.position_share.nanmean(1).nan_to_num(-1).argmax())
    logits = layers.shuffled.mean[layer].mean(0)
    maps = {
        "logits": (logits.where(logits.isfinite(), torch.nan), "logit", "with the patches of each image permuted"),
        "attention": (layers.attention[layer].mean(0), "attention", "on the original images"),
    }
    figures = []
    for name, (values, label, images) in maps.items():
        title = f"Mean {name}, layer {layer + 1}"
        data = {"maps": values.numpy(), "grid": grid, "title": title, "label": label, "high": None}
        caption = (
            f"Mean {name} from each position (white dot) to all others in layer {layer + 1}, which has the largest "
            f"position share of the logits; mean over heads and images, {images}."
        )
        figures.append(Figure(f"mean-{name}", "tiles", data, caption))
    return figures


def _image_figures(model: PatchClassifier, data: Dataset, grid: tuple[int, int]) -> list[Figure]:
    """Returns figures on the test images of ``data``: attention maps and, for CoPE and SaPE2, gates and counts.

    A gate is the weight, 0 to 1, with which these encodings count a key; the counts are sums of gates.
    """
    images = data.test.images[: len(data.test)]
    pixels = images.permute(0, 2, 3, 1).numpy()
    inputs = data.normalize(images.to(model.device))
    last = attention_maps(model, inputs)[:, 0]  # (B, H, R, C)
    heads = [f"head {head}" for head in range(1, last.shape[1] + 1)]
    maps = torch.cat([attention_rollout(model, inputs)[:, None], last], 1).numpy()
    shown = {"images": pixels, "maps": maps, "titles": ["rollout", *heads]}
    shown |= {"limits": (0.0, float(maps.max())), "label": "attention"}
    caption = "Attention of the pooled token: rollout through all layers, and by head in the last layer."
    figures = [Figure("attention", "image_maps", shown, caption)]
    if counting_part(model.encoding) is None:
        return figures
    center = grid[0] // 2, grid[1] // 2
    for number, gates in enumerate(gates_from_position(model, inputs, center)):
        way = _direction(gates)
        kinds = (("gates", gates.gates, 1.0, "gate"), ("counts", gates.counts, float(max(grid)), "position"))
        for name, values, high, label in kinds:
            content = {"images": pixels, "maps": values.numpy(), "titles": heads, "limits": (0.0, high), "label": label}
            quantity = "Gates" if name == "gates" else "Positions counted"
            caption = f"{quantity} of the query in the center of the grid, {way}, in the last layer."
            figures.append(Figure(f"{name}-{number}", "image_maps", content, caption))
    return figures


def _direction(maps: GateMaps) -> str:
    """Returns the direction in which a query counts keys, for captions; keys that it does not count are NaN."""
    counted = ~maps.gates[0, 0].isnan()  # (R, C)
    if counted.all():
        return "along all patches"
    return "along its row" if counted.all(1).any() else "along its column"

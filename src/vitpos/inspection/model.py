"""A look at a model at work: where position lives in it, layer by layer, whatever its encoding."""

from __future__ import annotations

from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from vitpos.data.base import Dataset
from vitpos.inspection._batches import grid_seen
from vitpos.inspection.attention_stats import attention_maps, attention_rollout
from vitpos.inspection.biases import bias_effects
from vitpos.inspection.content_gates import bias_by_content, counts_by_content, gates_seen_from
from vitpos.inspection.section import Drawn, Look
from vitpos.inspection.where import Where, where_position_lives
from vitpos.models.base import PatchClassifier
from vitpos.plotting import charts as draw
from vitpos.plotting import maps as portraits

SHOWN = 4  # pictures of which attention is drawn


def look_at_work(
    model: PatchClassifier, data: Dataset, *, images: int = 256, shown: Dataset | None = None, seed: int = 0
) -> Look:
    """Where position lives in a model that reads pictures: tokens, logits and attention, layer by layer.

    Numbers are those of ``Where``, some of them also by head; logits_prefer: what mean logits on shuffled images have
    more for neighbours, rows, columns, rim and corners, by layer (``bias_effects``), as tables of vectors do;
    bias_by_content: SaPE2's case study, the partial correlation of bias and likeness at equal offsets, by layer and
    head, with its spread over images. Attention is drawn on a few test images, or on those of the data ``shown``.
    """
    where = where_position_lives(model, data, limit=images, seed=seed)
    numbers: dict[str, Any] = where.numbers() | {
        "images": where.pictures.images,
        "position_share_by_head": where.shuffled.share.tolist(),
        "attention_distance_by_head": where.reach.tolist(),
        "logits_prefer": bias_effects(where.shuffled.bias, grid_seen(model, data)),
    }
    found = {
        "where": Drawn(
            _by_layer(where),
            "How well the place can be told from tokens (band: its standard error over images), and how much of the logits "
            "goes by places, layer by layer.",
        ),
        "attention-distance": Drawn(
            _reach(where.reach, where.uniform), "Mean distance of what is looked at, by head (grey) and on average."
        ),
        **_tiles(where, grid_seen(model, data)),
        **_pictures(model, data.some(SHOWN, seed=seed) if shown is None else shown),
    }
    if counts_by_content(model.encoding) is not None:
        told = bias_by_content(model, data, limit=images, seed=seed)
        numbers["bias_by_content"] = {"correlation": told.correlation.tolist(), "spread": told.spread.tolist()}
    return Look(numbers, found)


def _by_layer(where: Where) -> Figure:
    parts = {"logits, shuffled": where.shuffled, "logits, pictures": where.pictures}
    series = {
        "place from tokens, R²": [(float(n), probe.r2, probe.standard_error) for n, probe in enumerate(where.probes)]
    }
    for name, part in parts.items():
        series[name] = [(n + 1.0, share, 0.0) for n, share in enumerate(part.share.nanmean(1).tolist())]
    colours = dict(zip(series, draw.COLOURS, strict=False))
    span = -0.05, 1.05  # the same for all, so that two models can be compared
    title = "Where position lives"
    return draw.lines({title: series}, x="layer (0: input)", y="share", colours=colours, limits=span)[0]


def _reach(reach: Tensor, uniform: float) -> Figure:
    layers, zeros = [float(number + 1) for number in range(len(reach))], [0.0] * len(reach)
    series = {
        f"head {head}": list(zip(layers, one, zeros, strict=True)) for head, one in enumerate(reach.mT.tolist(), 1)
    }
    series["uniform"] = [(layer, uniform, 0.0) for layer in layers]
    series["mean"] = list(zip(layers, reach.mean(1).tolist(), zeros, strict=True))
    colours = {"mean": draw.COLOURS[0], "uniform": draw.COLOURS[1]}
    title = "How far attention reaches"
    return draw.lines({title: series}, x="layer", y="pixels", colours=colours, dashed="uniform", limits=_span(uniform))[
        0
    ]


def _span(uniform: float) -> tuple[float, float]:
    """From 0 to somewhat above what uniform attention reaches, the same for all models on a grid."""
    return 0.0, 1.3 * uniform


def _tiles(where: Where, grid: tuple[int, int]) -> dict[str, Drawn]:
    """What stands in for a table in the layer whose logits go by places most: mean logits and mean attention."""
    most = int(where.shuffled.share.nanmean(1).nan_to_num(-1).argmax())
    logits = where.shuffled.bias[most].mean(0)
    logits = logits.where(logits.isfinite(), torch.nan)
    whole = f"of layer {most + 1}, where position has the largest share of the logits, mean over heads and images"
    return {
        "mean-logits": Drawn(
            draw.tiles(logits.numpy(), grid, title=f"Mean logits, layer {most + 1}", label="logit", top=None),
            f"From each place (white dot): the logits {whole}, patches shuffled, so that only places are left of them.",
        ),
        "mean-attention": Drawn(
            draw.tiles(
                where.attention[most].mean(0).numpy(),
                grid,
                title=f"Mean attention, layer {most + 1}",
                label="share",
                top=None,
            ),
            f"From each place (white dot): the attention {whole}, pictures as they are.",
        ),
    }


def _pictures(model: PatchClassifier, data: Dataset) -> dict[str, Drawn]:
    """What the test images of a small set are looked at by, and counted, in the last layer."""
    images = data.test.images[: len(data.test)]
    shown = images.permute(0, 2, 3, 1).numpy()
    inputs = data.inputs(images.to(model.project.weight.device))
    last = attention_maps(model, inputs)[:, 0]  # (B, H, R, C)
    rolled = attention_rollout(model, inputs)[:, None]
    heads = [f"head {head}" for head in range(1, last.shape[1] + 1)]
    maps = torch.cat([rolled, last], 1).numpy()
    found = {
        "attention": Drawn(
            portraits.beside(shown, maps, ["rollout", *heads], limits=(0, float(maps.max())), label="share"),
            "What is looked at: carried through all layers (rollout), and in the last layer by head.",
        )
    }
    counting = counts_by_content(model.encoding)
    if counting is not None:
        grid = grid_seen(model, data)
        middle = grid[0] // 2, grid[1] // 2
        lines = gates_seen_from(model, inputs, middle)
        ways = ("along its row", "along its column") if len(lines) > 1 else ("along all patches",)
        for number, (counted, way) in enumerate(zip(lines, ways, strict=True)):
            found[f"gates-{number}"] = Drawn(
                portraits.beside(shown, counted.gates.numpy(), heads, limits=(0, 1), label="gate"),
                f"Gates of the middle place, {way}, in the last layer.",
            )
            found[f"counts-{number}"] = Drawn(
                portraits.beside(shown, counted.counts.numpy(), heads, limits=(0, max(grid)), label="position"),
                f"Positions counted from the middle place, {way}, in the last layer.",
            )
    return found

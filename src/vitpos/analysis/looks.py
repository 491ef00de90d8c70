"""A look at a table, at what is said of offsets, at a model at work: numbers, and figures of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from vitpos.analysis import figures as draw
from vitpos.analysis import portraits
from vitpos.analysis.attention import attention_maps, attention_rollout
from vitpos.analysis.gates import bias_by_content, counts_by_content, gates_seen_from
from vitpos.analysis.passes import grid_seen
from vitpos.analysis.projection import grid_residual, principal, umap
from vitpos.analysis.regression import LINEAR, SLOW, baselines, regression
from vitpos.analysis.similarity import cosine_similarity
from vitpos.analysis.spectrum import spectrum
from vitpos.analysis.structure import structure
from vitpos.analysis.where import Where, where_position_lives
from vitpos.data.base import Dataset
from vitpos.models.base import PatchClassifier

SHOWN = 4  # pictures of which attention is drawn


@dataclass(frozen=True)
class Look:
    """Numbers, nested as in ``inspect.json``, and figures by name."""

    numbers: dict[str, Any]
    figures: dict[str, Figure] = field(default_factory=dict)


def look_at_table(table: Tensor, *, slow: bool = False, seed: int = 0) -> Look:
    """What position vectors (R, C, D) say by themselves, beside white noise and fixed waves of the same shape.

    ``slow`` also asks a support vector machine, a small network and UMAP, which need the extra ``analysis``. Of large
    grids places are shuffled less often: regression takes 2,000 places in all, but 10 shufflings at most.
    """
    grid = table.shape[0], table.shape[1]
    flat = table.detach().cpu().double().flatten(0, 1)
    everyone = {"table": table, **baselines(table, seed=seed)}
    spectra = {name: spectrum(one) for name, one in everyone.items()}
    methods = (*LINEAR, *SLOW) if slow else LINEAR
    shuffles, tables = min(10, max(1, 2000 // len(flat))), 500 if len(flat) <= 400 else 200
    flatly = principal(table)
    lengths = flat.norm(dim=1)
    numbers: dict[str, Any] = {
        "norm": {"mean": lengths.mean().item(), "least": lengths.min().item(), "most": lengths.max().item()}
        | {"by_place": lengths.unflatten(0, grid).tolist()},
        "spectrum": {
            name: {way: one.explained() | {"effective_rank": one.effective_rank} for way, one in both.items()}
            for name, both in spectra.items()
        },
        "accumulated": {
            way: {"variance": one.variance, "values": one.accumulated} for way, one in spectra["table"].items()
        },
        "regression": {
            name: regression(one, methods=methods, shuffles=shuffles, seed=seed).methods
            for name, one in everyone.items()
        },
        "structure": {name: asdict(finding) for name, finding in structure(table, tables=tables, seed=seed).items()},
        "projection": {"pca_residual": grid_residual(flatly)},
    }
    found = {
        "similarity": draw.tiles(
            cosine_similarity(flat).numpy(), grid, title="Likeness of each place's vector to all others"
        ),
        "norms": portraits.maps({"length": lengths.unflatten(0, grid)[None].numpy()}, label="length", heads=False),
        "spectrum": _spectra({name: both["centred"].variance for name, both in spectra.items()}),
        "pca-2d": portraits.places(flatly.numpy(), title="Two principal components"),
        "pca-3d": portraits.places(principal(table, dimensions=3).numpy(), title="Three principal components"),
    }
    if slow:
        laid = umap(table, seed=seed)
        numbers["projection"] |= {"umap_residual": laid.residual, "umap_trustworthiness": laid.trustworthiness}
        if laid.points is not None:
            found["umap"] = portraits.places(laid.points.numpy(), title=f"UMAP, seed {seed}")
    return Look(numbers, found)


def _spectra(shares: Mapping[str, list[float] | None]) -> Figure:
    curves = {
        name: [(float(number), share, 0.0) for number, share in enumerate(values[:30], 1)]
        for name, values in shares.items()
        if values
    }
    colours = dict(zip(curves, draw.COLOURS, strict=False))
    title = "Share of the variance in the first components"
    return draw.lines({title: curves}, x="components", y="share", colours=colours)[0]


def look_at_offsets(biases: Mapping[str, Tensor], waves: Tensor | None) -> Look:
    """What is said of offsets: tables (H, 2R − 1, 2C − 1) by layer, and the frequency plane (depth, H, pairs, 2)."""
    numbers: dict[str, Any] = {}
    found: dict[str, Figure] = {}
    if biases:
        finite = {name: table[table.isfinite()] for name, table in biases.items()}
        numbers["biases"] = {name: {"least": t.min().item(), "most": t.max().item()} for name, t in finite.items()}
        found["biases"] = portraits.maps(
            {name: table.numpy() for name, table in biases.items()}, label="added to the logit", signed=True
        )
    if waves is not None:
        sizes = waves.norm(dim=-1)
        numbers["frequencies"] = {"least": sizes.min().item(), "most": sizes.max().item()}
        found["frequencies"] = portraits.frequencies(waves.numpy())
    return Look(numbers, found)


def look_at_work(
    model: PatchClassifier, data: Dataset, *, images: int = 256, shown: Dataset | None = None, seed: int = 0
) -> Look:
    """Where position lives in a model that reads pictures: tokens, logits and attention, layer by layer.

    Numbers are those of ``Where``, two of them also by head; bias_by_content: SaPE2's case study, the partial correlation
    of bias and likeness at equal offsets, by layer and head, with its spread over images. Attention is drawn on a few test
    images, or on those of the data ``shown``.
    """
    where = where_position_lives(model, data, limit=images, seed=seed)
    numbers: dict[str, Any] = where.numbers() | {
        "images": where.pictures.images,
        "position_share_by_head": where.shuffled.share.tolist(),
        "attention_distance_by_head": where.reach.tolist(),
    }
    most = int(where.shuffled.position.mean(1).argmax())
    found = {
        "where": _by_layer(where),
        "attention-distance": _reach(where.reach, where.uniform),
        "mean-attention": draw.tiles(
            where.attention[most].mean(0).numpy(),
            grid_seen(model, data),
            title=f"Mean attention of each place in layer {most}, all heads",
            label="share",
            top=None,
        ),
        **_pictures(model, data.some(SHOWN, seed=seed) if shown is None else shown),
    }
    if counts_by_content(model.encoding) is not None:
        told = bias_by_content(model, data, limit=images, seed=seed)
        numbers["bias_by_content"] = {"correlation": told.correlation.tolist(), "spread": told.spread.tolist()}
    return Look(numbers, found)


def _by_layer(where: Where) -> Figure:
    parts = {"logits, shuffled": where.shuffled, "logits, pictures": where.pictures}
    series = {"place from tokens, R²": [(float(n), probe.r2, 0.0) for n, probe in enumerate(where.probes)]}
    for name, part in parts.items():
        series[name] = [(n + 1.0, share, 0.0) for n, share in enumerate(part.share.nanmean(1).tolist())]
    colours = dict(zip(series, draw.COLOURS, strict=False))
    span = -0.05, 1.05  # the same for all, so that two models can be compared
    title = "Where position lives"
    return draw.lines({title: series}, x="layer (0: input)", y="share", colours=colours, limits=span)[0]


def _reach(reach: Tensor, uniform: float) -> Figure:
    layers, zeros = [float(number + 1) for number in range(len(reach))], [0.0] * len(reach)
    series = {f"head {head}": list(zip(layers, one, zeros, strict=True)) for head, one in enumerate(reach.mT.tolist())}
    series["uniform"] = [(layer, uniform, 0.0) for layer in layers]
    series["mean"] = list(zip(layers, reach.mean(1).tolist(), zeros, strict=True))
    colours = {"mean": draw.COLOURS[0], "uniform": draw.COLOURS[1]}
    return draw.lines({"How far attention reaches": series}, x="layer", y="pixels", colours=colours, dashed="uniform")[
        0
    ]


def _pictures(model: PatchClassifier, data: Dataset) -> dict[str, Figure]:
    """What the test images of a small set are looked at by, and counted, in the last layer."""
    images = data.test.images[: len(data.test)]
    shown = images.permute(0, 2, 3, 1).numpy()
    inputs = data.inputs(images.to(model.project.weight.device))
    last = attention_maps(model, inputs)[:, 0]  # (B, H, R, C)
    rolled = attention_rollout(model, inputs)[:, None]
    names = [f"head {head}" for head in range(last.shape[1])] + ["rollout"]
    found = {"attention": portraits.beside(shown, torch.cat([last, rolled], 1).numpy(), names)}
    if counts_by_content(model.encoding) is not None:
        grid = grid_seen(model, data)
        middle = grid[0] // 2, grid[1] // 2
        for line, counted in enumerate(gates_seen_from(model, inputs, middle)):
            found[f"gates-{line}"] = portraits.beside(shown, counted.gates.numpy(), names[:-1])
            found[f"counts-{line}"] = portraits.beside(shown, counted.counts.numpy(), names[:-1])
    return found

"""Inspects a position table: norms, spectrum, regression, structure and projections, beside white noise and sin-cos."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from vitpos.encodings.base import Geometry
from vitpos.encodings.sinusoidal import Sinusoidal
from vitpos.inspection.section import Figure, Section
from vitpos.inspection.table_projection import Projection, pca, umap
from vitpos.inspection.table_regression import EXTRA, LINEAR, regression
from vitpos.inspection.table_stats import Spectrum, cosine_similarity, spectrum
from vitpos.inspection.table_structure import structure
from vitpos.patches import make_generator
from vitpos.positions import Positions

MAX_COMPONENTS = 30  # components shown in the figures of the spectrum
MAX_TILES = 1600  # positions up to which the similarity maps of all positions are drawn
BASELINE_LABELS = {"noise": "white noise", "sin_cos": "fixed sin-cos"}
PROJECTION_TITLES = {"pca": "First two principal components", "umap": "UMAP"}


def inspect_table(table: Tensor, *, extra: bool = False, seed: int = 0) -> Section:
    """Returns the section ``table``: numbers and figures of a position table (R, C, D), beside two baseline tables.

    The baselines, on the same grid, are white noise and fixed sin-cos. norm: mean, smallest and largest norm of the
    vectors; norm_by_position: (R, C) norms. spectrum: singular values of the table and of both baselines. regression:
    scores of predicting a position from its vector, for the table and both baselines. structure: tests of statements
    such as "neighbors are similar". projection: agreement of PCA and UMAP with the grid.

    Args:
        extra: also predict positions from their vectors by SVM and MLP, and project the vectors by UMAP. It takes
            minutes and needs scikit-learn and umap-learn (the extra ``analysis`` of vitpos).
    """
    grid = table.shape[0], table.shape[1]
    flat = table.detach().cpu().double().flatten(0, 1)
    tables = {"table": table, **baseline_tables(table, seed=seed)}
    spectra = {name: spectrum(one) for name, one in tables.items()}
    methods = (*LINEAR, *EXTRA) if extra else LINEAR
    projections = {"pca": pca(table), **({"umap": umap(table, seed=seed)} if extra else {})}
    norms = flat.norm(dim=1)
    numbers: dict[str, Any] = {
        "norm": {"mean": norms.mean().item(), "min": norms.min().item(), "max": norms.max().item()},
        "norm_by_position": norms.unflatten(0, grid).tolist(),
        "spectrum": {
            name: {kind: _spectrum_numbers(one) for kind, one in both.items()} for name, both in spectra.items()
        },
        "regression": {name: asdict(regression(one, methods=methods, seed=seed)) for name, one in tables.items()},
        "structure": {name: asdict(finding) for name, finding in structure(table, seed=seed).items()},
        "projection": {
            name: {"residual": one.residual, "trustworthiness": one.trustworthiness, "reason": one.reason}
            for name, one in projections.items()
        },
    }
    norm_map = {"rows": {"norm": norms.unflatten(0, grid)[None].numpy()}, "label": "norm", "numbered": False}
    figures = [
        Figure("norms", "maps", norm_map, "Norm of the position vector at each position."),
        *_spectrum_figures(spectra),
        *(_similarity_figure(flat, grid) if len(flat) <= MAX_TILES else ()),
        *_projection_figures(projections, _component_labels(spectra["table"]["centered"])),
    ]
    return Section("table", numbers, tuple(figures))


def baseline_tables(table: Tensor, *, seed: int = 0) -> dict[str, Tensor]:
    """Returns two tables on the grid of ``table`` (R, C, D) to compare it with: ``noise`` and ``sin_cos``.

    ``noise`` is Gaussian with the standard deviation of the table. ``sin_cos`` is the fixed 2-D sinusoidal encoding; its
    width is rounded up to a multiple of 4.
    """
    rows, columns, width = table.shape
    noise = torch.randn(table.shape, generator=make_generator(seed), dtype=torch.float64)
    width += -width % 4
    sinusoidal = Sinusoidal(Geometry(dim=width, heads=1, depth=1, grid=(rows, columns)))
    vectors = sinusoidal.vectors(Positions.from_grid((rows, columns)), 0, torch.float64)
    assert vectors is not None
    return {
        "noise": noise * table.detach().cpu().double().std(correction=0),
        "sin_cos": vectors[0].unflatten(0, (rows, columns)),
    }


def _spectrum_numbers(one: Spectrum) -> dict[str, Any]:
    """Returns the numbers of a spectrum, the singular values of a position table, as a dictionary for ``inspect.json``.

    explained_n: fraction of the variance in the first n = 1 … 10 components. effective_rank: exp of the entropy of the
    variance fractions of the components. cumulative_variance, cumulative_singular_values: fraction of the sum in the
    first n components, for all n. reason: why numbers are missing, if all singular values are 0; otherwise empty.
    """
    curves = {"cumulative_variance": one.variance, "cumulative_singular_values": one.cumulative}
    return one.explained() | {"effective_rank": one.effective_rank, "reason": one.reason} | curves


def _spectrum_figures(spectra: Mapping[str, Mapping[str, Spectrum]]) -> list[Figure]:
    """Returns figures of the cumulative variance and the cumulative singular values by number of components.

    ``spectra`` is table (``table``, ``noise``, ``sin_cos``) → ``centered`` or ``raw`` → spectrum; each table is a curve.
    """
    figures = []
    for name, quantity in (("variance", "variance"), ("cumulative", "sum of singular values")):
        curves = {
            BASELINE_LABELS.get(who, who): [
                (float(n), value, 0.0) for n, value in enumerate(values[:MAX_COMPONENTS], 1)
            ]
            for who, both in spectra.items()
            if (values := getattr(both["centered"], name))
        }
        if curves:
            title = f"Fraction of the {quantity}"
            data = {"series": curves, "title": title, "x": "components", "y": "fraction", "highlighted": list(curves)}
            caption = f"{title} in the first principal components of the centered vectors (MJP's Figure 4)."
            figures.append(Figure(f"spectrum-{name}", "lines", data, caption))
    return figures


def _similarity_figure(vectors: Tensor, grid: tuple[int, int]) -> list[Figure]:
    title = "Cosine similarity of each position's vector to all others"
    data = {"maps": cosine_similarity(vectors).numpy(), "grid": grid, "title": title, "low": -1.0}
    caption = (
        "Cosine similarity of the vector of each position (white dot) to those of all others, as in ViT's Figure 7."
    )
    return [Figure("similarity", "tiles", data, caption)]


def _projection_figures(projections: Mapping[str, Projection], labels: list[str]) -> list[Figure]:
    figures = []
    if projections["pca"].points_3d is not None:
        data = {
            "points": projections["pca"].points_3d.numpy(),
            "title": "First three principal components",
            "labels": labels,
        }
        caption = (
            "Positions by three principal components: rows joined in blue, columns in red, the first position black."
        )
        figures.append(Figure("pca-3d", "points", data, caption))
    for name, one in projections.items():
        if one.points is not None:
            axes = labels if name == "pca" else []
            data = {"points": one.points.numpy(), "title": PROJECTION_TITLES[name], "labels": axes}
            caption = f"Positions by {name.upper()}, neighbors joined; residual to the grid {one.residual:.3f}."
            figures.append(Figure(f"{name}-2d", "points", data, caption))
    return figures


def _component_labels(one: Spectrum) -> list[str]:
    """Returns axis labels of the first three components, such as ``component 1 (32 %)``, the percentage of variance."""
    cumulative = [0.0, *(one.variance or [])[:3]]
    return [f"component {n} ({100 * (b - a):.0f} %)" for n, (a, b) in enumerate(pairwise(cumulative), 1)]

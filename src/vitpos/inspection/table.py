"""A look at a table of position vectors: what they say by themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from itertools import pairwise
from typing import Any

from torch import Tensor

from vitpos.inspection.section import Drawn, Look
from vitpos.inspection.similarity import cosine_similarity
from vitpos.inspection.spectrum import Spectrum, spectrum
from vitpos.inspection.table_projection import pca, umap
from vitpos.inspection.table_regression import LINEAR, SLOW, baselines, regression
from vitpos.inspection.table_structure import structure
from vitpos.plotting import charts as draw
from vitpos.plotting import maps as portraits

COMPONENTS = 30  # of a spectrum that are drawn
PLACES = 1600  # of which every map is drawn
SAID = {"noise": "white noise", "sin_cos": "fixed waves"}  # of the tables that others are compared with


def look_at_table(table: Tensor, *, slow: bool = False, seed: int = 0) -> Look:
    """What position vectors (R, C, D) say by themselves, beside white noise and fixed waves of the same shape.

    ``slow`` also asks a support vector machine, a small network and UMAP, which need the extra ``analysis``.
    """
    grid = table.shape[0], table.shape[1]
    flat = table.detach().cpu().double().flatten(0, 1)
    compared = {"table": table, **baselines(table, seed=seed)}
    spectra = {name: spectrum(one) for name, one in compared.items()}
    methods = (*LINEAR, *SLOW) if slow else LINEAR
    laid = {"pca": pca(table), **({"umap": umap(table, seed=seed)} if slow else {})}
    lengths = flat.norm(dim=1)
    numbers: dict[str, Any] = {
        "norm": {"mean": lengths.mean().item(), "least": lengths.min().item(), "most": lengths.max().item()},
        "norm_by_place": lengths.unflatten(0, grid).tolist(),
        "spectrum": {name: {way: _told(one) for way, one in both.items()} for name, both in spectra.items()},
        "regression": {name: asdict(regression(one, methods=methods, seed=seed)) for name, one in compared.items()},
        "structure": {name: asdict(finding) for name, finding in structure(table, seed=seed).items()},
        "projection": {
            name: {"residual": one.residual, "trustworthiness": one.trustworthiness, "reason": one.reason}
            for name, one in laid.items()
        },
    }
    found = {
        "norms": Drawn(
            portraits.maps({"length": lengths.unflatten(0, grid)[None].numpy()}, label="length", numbered=False),
            "Length of the vector of each place.",
        ),
        **_spectra(spectra),
    }
    if len(flat) <= PLACES:
        found["similarity"] = Drawn(
            draw.tiles(
                cosine_similarity(flat).numpy(), grid, title="Likeness of each place's vector to all others", low=-1
            ),
            "Cosine between the vector of each place (white dot) and those of all others, as in ViT's Figure 7.",
        )
    if laid["pca"].space is not None:
        found["pca-3d"] = Drawn(
            portraits.places(
                laid["pca"].space.numpy(), title="Three principal components", labels=_components(spectra)
            ),
            "Places by three principal components: rows joined in blue, columns in red, the first place black.",
        )
    for name, one in laid.items():
        if one.points is not None:
            said = {"pca": "Two principal components", "umap": f"UMAP, seed {seed}"}[name]
            caption = (
                f"Places by {name.upper()} in the plane, neighbours joined; residual of the grid {one.residual:.3f}."
            )
            labels = _components(spectra) if name == "pca" else ()
            found[f"{name}-2d"] = Drawn(portraits.places(one.points.numpy(), title=said, labels=labels), caption)
    return Look(numbers, found)


def _components(spectra: Mapping[str, Mapping[str, Spectrum]]) -> list[str]:
    """The names of the first components, with the share of the variance that each has."""
    shares = [0.0, *(spectra["table"]["centred"].variance or [])[:3]]
    return [f"component {n} ({100 * (after - before):.0f} %)" for n, (before, after) in enumerate(pairwise(shares), 1)]


def _told(one: Spectrum) -> dict[str, Any]:
    """What ``inspect.json`` has of a spectrum."""
    accumulated = {"accumulated_variance": one.variance, "accumulated_values": one.accumulated}
    return one.explained() | {"effective_rank": one.effective_rank, "reason": one.reason} | accumulated


def _spectra(spectra: Mapping[str, Mapping[str, Spectrum]]) -> dict[str, Drawn]:
    """Curves of the table, of noise and of waves: of squared singular values, and of singular values."""
    found = {}
    for name, what in (("variance", "variance"), ("accumulated", "sum of singular values")):
        curves = {
            SAID.get(who, who): [(float(number), share, 0.0) for number, share in enumerate(values[:COMPONENTS], 1)]
            for who, both in spectra.items()
            if (values := getattr(both["centred"], name))
        }
        colours = dict(zip(curves, draw.COLOURS, strict=False))
        title = f"Share of the {what}"
        (figure,) = draw.lines({title: curves}, x="components", y="share", colours=colours) if curves else [None]
        if figure:
            caption = f"Share of the {what} in the first components (MJP's Figure 4), mean vector taken off."
            found[f"spectrum-{name}"] = Drawn(figure, caption)
    return found

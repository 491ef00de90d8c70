"""Report sections that show the reconstructions of attacks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from matplotlib.figure import Figure

from vitpos import plotting as draw
from vitpos.evaluations import ATTACKS, EVALUATIONS
from vitpos.lab.results import Results
from vitpos.report.attack import difference, drawn, nearness
from vitpos.report.groups import first_runs

SHOWN = 3  # images per attack, few because a page has many attacks


def attacks(results: Results) -> Iterator[tuple[str, str, Figure | None]]:
    """Yields title, caption and figure of each attack, for the first seed of every row.

    The figure shows the same images for all rows; the caption gives the reason where an attack does not apply.
    """
    for spec in _asked(results):
        for group, runs in first_runs(results).items():
            strips: dict[str, np.ndarray] = {}
            reasons: dict[str, list[str]] = {}
            for name, run in runs.items():
                result = run.load_result(spec)
                if result.reason:
                    reasons.setdefault(result.reason, []).append(name)
                if result.images:
                    found, goal = (drawn(result.images[which][:SHOWN]) for which in ("reconstruction", "target"))
                    strips.setdefault("target", goal)
                    near = nearness(result.numbers, len(result.images["reconstruction"]))
                    strips[f"{name}, {near}"] = np.concatenate([found, difference(found, goal)])
            note = "Each row: reconstructions, then their absolute difference from the targets." if strips else ""
            skipped = [f"Not applicable to {', '.join(names)}: {why}." for why, names in reasons.items()]
            if strips or skipped:
                title = " · ".join(filter(None, (f"Attack {spec}", group)))
                yield title, " ".join(filter(None, [note, *skipped])), draw.image_strips(strips) if strips else None


def films(results: Results) -> Iterator[tuple[str, str, Figure | None]]:
    """Yields title, caption and figure of the intermediate images of each attack by descent."""
    for spec in _asked(results):
        for group, runs in first_runs(results).items():
            frames = {name: run.load_result(spec).images.get("trajectory") for name, run in runs.items()}
            strips = {name: drawn(film[0]) for name, film in frames.items() if film is not None}
            if strips:
                title = " · ".join(filter(None, (f"Intermediate images: {spec}", group)))
                yield title, "The first image, from the start of the descent to its end.", draw.image_strips(strips)


def _asked(results: Results) -> list[str]:
    """The specs of the attacks that were evaluated."""
    return [spec for spec in results.evaluations if EVALUATIONS.parse(spec)[0].name in ATTACKS]

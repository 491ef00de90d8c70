"""The sections of the page that show what attacks found."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from matplotlib.figure import Figure

from vitpos import plotting as draw
from vitpos.evaluations import ATTACKS, EVALUATIONS
from vitpos.lab.results import Results
from vitpos.report.attack import difference, drawn, nearness
from vitpos.report.groups import first_runs

SHOWN = 3  # pictures of each attack: a page has many


def attacks(results: Results) -> Iterator[tuple[str, str, Figure | None]]:
    """What each attack found, for the first seed of every row, or why it could not; the same pictures for all."""
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
                    strips.setdefault("to be found", goal)
                    near = nearness(result.numbers, len(result.images["reconstruction"]))
                    strips[f"{name}, {near}"] = np.concatenate([found, difference(found, goal)])
            note = "In each row what was found, then how far it is from what was to be found." if strips else ""
            said = [f"Not {', '.join(names)}: {why}." for why, names in reasons.items()]
            if strips or said:
                title = " · ".join(filter(None, (f"Attack {spec}", group)))
                yield title, " ".join(filter(None, [note, *said])), draw.image_strips(strips) if strips else None


def films(results: Results) -> Iterator[tuple[str, str, Figure | None]]:
    """How the first picture of each descent came about."""
    for spec in _asked(results):
        for group, runs in first_runs(results).items():
            frames = {name: run.load_result(spec).images.get("trajectory") for name, run in runs.items()}
            strips = {name: drawn(film[0]) for name, film in frames.items() if film is not None}
            if strips:
                title = " · ".join(filter(None, (f"How it was found: {spec}", group)))
                yield title, "The first picture, from its start to the end.", draw.image_strips(strips)


def _asked(results: Results) -> list[str]:
    """The attacks that were asked."""
    return [spec for spec in results.evaluations if EVALUATIONS.parse(spec)[0].name in ATTACKS]

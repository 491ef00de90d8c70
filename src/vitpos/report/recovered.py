"""The sections of the page that show what attacks found."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from matplotlib.figure import Figure

from vitpos import plotting as draw
from vitpos.attacks import ATTACKS
from vitpos.questions import QUESTIONS
from vitpos.report.attack import difference, drawn, nearness
from vitpos.report.groups import first_runs
from vitpos.store import Folder

SHOWN = 3  # pictures of each attack: a page has many


def attacks(folder: Folder) -> Iterator[tuple[str, str, Figure | None]]:
    """What each attack found, for the first seed of every row, or why it could not; the same pictures for all."""
    for spec in _asked(folder):
        for group, runs in first_runs(folder).items():
            strips: dict[str, np.ndarray] = {}
            reasons: dict[str, list[str]] = {}
            for name, run in runs.items():
                tensors, why = run.pictures(spec)
                if why:
                    reasons.setdefault(why, []).append(name)
                if "found" in tensors:
                    found, goal = (drawn(tensors[which][:SHOWN]) for which in ("found", "goal"))
                    strips.setdefault("to be found", goal)
                    near = nearness(run.scores.get(spec, {}), len(tensors["found"]))
                    strips[f"{name}, {near}"] = np.concatenate([found, difference(found, goal)])
            note = "In each row what was found, then how far it is from what was to be found." if strips else ""
            said = [f"Not {', '.join(names)}: {why}." for why, names in reasons.items()]
            if strips or said:
                title = " · ".join(filter(None, (f"Attack {spec}", group)))
                yield title, " ".join(filter(None, [note, *said])), draw.image_strips(strips) if strips else None


def films(folder: Folder) -> Iterator[tuple[str, str, Figure | None]]:
    """How the first picture of each descent came about."""
    for spec in _asked(folder):
        for group, runs in first_runs(folder).items():
            frames = {name: run.pictures(spec)[0].get("frames") for name, run in runs.items()}
            strips = {name: drawn(film[0]) for name, film in frames.items() if film is not None}
            if strips:
                title = " · ".join(filter(None, (f"How it was found: {spec}", group)))
                yield title, "The first picture, from its start to the end.", draw.image_strips(strips)


def _asked(folder: Folder) -> list[str]:
    """The attacks that were asked."""
    every = dict.fromkeys(spec for _, run in folder.runs for spec in run.scores)
    return [spec for spec in every if QUESTIONS.parse(spec)[0].name in ATTACKS]

"""Draws the images that attacks reconstruct, for the report page and for ``vitpos attack``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from vitpos import plotting as draw
from vitpos.evaluations import ATTACKS, EVALUATIONS
from vitpos.evaluations.result import Result
from vitpos.files import write_bytes
from vitpos.lab.cells import Cell
from vitpos.lab.results import Results, result_rows, write_rows
from vitpos.report.figure_groups import first_seed_folders

Attacked = tuple[Cell, str, Result]  # cell, spec of the attack, result
SHOWN = 8  # images in a strip
SHOWN_ON_PAGE = 3  # few, because a page has many attacks


def write_attacks(out: Path, results: Sequence[Attacked], own: Sequence[Path] = ()) -> Path:
    """Writes ``results.csv`` with all attack results so far, and a PNG of the last one if it has images.

    Returns the path of the CSV file.

    Args:
        out: output folder.
        results: triples (settings of the model's training, attack such as ``closed_form(images=8)``, result).
        own: image files that replaced the test images; their names are written in the column ``experiment``.
    """
    name = " ".join(["attack", *(file.name for file in own)])
    varied = list(dict.fromkeys(key for cell, _, _ in results for key, _ in cell.varied))
    cell, spec, result = results[-1]
    if result.images:
        found, goal = (to_arrays(result.images[which][:SHOWN]) for which in ("reconstruction", "target"))
        strips = {
            f"target, {cell.label}": goal,
            f"reconstruction by {spec}, {similarity_text(result.numbers, len(result.images['reconstruction']))}": found,
            "absolute difference": difference(found, goal),
        }
        if "trajectory" in result.images:
            strips["first image during the descent"] = to_arrays(result.images["trajectory"][0])
        words = f"{len(results) - 1:02} {cell.label} seed{cell.seed} {spec}"
        file = re.sub(r"[^A-Za-z0-9.]+", "-", words)[:100].strip("-")
        write_bytes(out / f"{file}.png", draw.png(draw.image_strips(strips)))
    return write_rows(out / "results.csv", result_rows(name, results, varied), varied)


def similarity_text(numbers: Mapping[str, float], images: int) -> str:
    """Returns a caption with the mean PSNR and SSIM of reconstructed images.

    Args:
        numbers: metrics of the attack, by name.
        images: how many images were reconstructed.
    """
    if not {"psnr", "psnr_mean_image"} <= set(numbers):
        return "PSNR not measured yet"
    ssim = f", SSIM {numbers['ssim']:.2f}" if "ssim" in numbers else ""
    return f"mean of {images}: PSNR {numbers['psnr']:.1f} dB (mean color {numbers['psnr_mean_image']:.1f}){ssim}"


def to_arrays(images: Tensor) -> np.ndarray:
    """Converts images (n, C, height, width), uint8 or floats from 0 to 1, to uint8 arrays (n, height, width, C)."""
    pixels = images if images.dtype == torch.uint8 else images.mul(255).round().byte()
    return pixels.permute(0, 2, 3, 1).numpy()


def difference(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Returns the absolute difference of two uint8 arrays of images (n, height, width, C), as uint8."""
    return np.abs(one.astype(int) - other).astype(np.uint8)


def attacks(results: Results) -> Iterator[tuple[str, str, Figure | None]]:
    """Yields (title, caption, figure) for each attack, with one strip of images per model (first seed).

    A strip shows the reconstructed images, then their absolute difference from the original images, which are the same for
    all models. The caption gives the reason where an attack does not apply; the figure is None if it applies to no model.
    """
    for spec in _attack_specs(results):
        for group, folders in first_seed_folders(results).items():
            strips: dict[str, np.ndarray] = {}
            reasons: dict[str, list[str]] = {}
            for name, folder in folders.items():
                result = folder.load_result(spec)
                if result.reason:
                    reasons.setdefault(result.reason, []).append(name)
                if result.images:
                    found, goal = (
                        to_arrays(result.images[which][:SHOWN_ON_PAGE]) for which in ("reconstruction", "target")
                    )
                    strips.setdefault("target", goal)
                    near = similarity_text(result.numbers, len(result.images["reconstruction"]))
                    strips[f"{name}, {near}"] = np.concatenate([found, difference(found, goal)])
            note = "Each row: reconstructions, then their absolute difference from the targets." if strips else ""
            skipped = [f"Not applicable to {', '.join(names)}: {why}." for why, names in reasons.items()]
            if strips or skipped:
                title = " · ".join(filter(None, (f"Attack {spec}", group)))
                yield title, " ".join(filter(None, [note, *skipped])), draw.image_strips(strips) if strips else None


def trajectories(results: Results) -> Iterator[tuple[str, str, Figure | None]]:
    """Yields (title, caption, figure) for each attack that works by gradient descent, with its intermediate images.

    There is a strip of images per model (first seed), which shows the reconstruction of the first image.
    """
    for spec in _attack_specs(results):
        for group, folders in first_seed_folders(results).items():
            frames = {name: folder.load_result(spec).images.get("trajectory") for name, folder in folders.items()}
            strips = {name: to_arrays(images[0]) for name, images in frames.items() if images is not None}
            if strips:
                title = " · ".join(filter(None, (f"Intermediate images: {spec}", group)))
                yield title, "The first image, from the start of the descent to its end.", draw.image_strips(strips)


def _attack_specs(results: Results) -> list[str]:
    """Returns the attacks that have stored results, as texts such as ``closed_form(images=8)``."""
    return [spec for spec in results.evaluations if EVALUATIONS.parse(spec)[0].name in ATTACKS]

"""Writes the output of ``vitpos attack``: a CSV file of all numbers, and a PNG of images for each model and attack."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vitpos import plotting as draw
from vitpos.evaluations.result import Result
from vitpos.files import write_bytes
from vitpos.lab.cells import Cell
from vitpos.lab.results import result_rows, write_rows

Attacked = tuple[Cell, str, Result]  # cell, spec of the attack, result
SHOWN = 8  # images in a strip


def write_attacks(out: Path, results: Sequence[Attacked], own: Sequence[Path] = ()) -> Path:
    """Writes ``results.csv`` with all results so far, and a PNG of the last one if it has images.

    Args:
        own: image files that replaced the test images; their names are written in the column ``experiment``.
    """
    name = " ".join(["attack", *(file.name for file in own)])
    swept = list(dict.fromkeys(key for cell, _, _ in results for key, _ in cell.varied))
    rows: list[tuple[Any, ...]] = []
    for cell, spec, result in results:
        fixed = name, cell.data, cell.model, cell.encoding, cell.seed, spec
        values = [dict(cell.varied).get(key, "") for key in swept]
        rows += [(*fixed, *row, *values) for row in result_rows(result)]
    cell, spec, result = results[-1]
    if result.images:
        found, goal = (drawn(result.images[which][:SHOWN]) for which in ("reconstruction", "target"))
        strips = {
            f"target, {cell.label}": goal,
            f"reconstruction by {spec}, {nearness(result.numbers, len(result.images['reconstruction']))}": found,
            "absolute difference": difference(found, goal),
        }
        if "trajectory" in result.images:
            strips["first image during the descent"] = drawn(result.images["trajectory"][0])
        words = f"{len(results) - 1:02} {cell.label} seed{cell.seed} {spec}"
        file = re.sub(r"[^A-Za-z0-9.]+", "-", words)[:100].strip("-")
        write_bytes(out / f"{file}.png", draw.png(draw.image_strips(strips)))
    return write_rows(out / "results.csv", rows, swept)


def nearness(numbers: Mapping[str, float], images: int) -> str:
    """Mean PSNR and SSIM of the reconstructions of a number of ``images``, as text for a caption."""
    if not {"psnr", "psnr_grey"} <= set(numbers):
        return "PSNR not measured yet"
    ssim = f", SSIM {numbers['ssim']:.2f}" if "ssim" in numbers else ""
    return f"mean of {images}: PSNR {numbers['psnr']:.1f} dB (gray image {numbers['psnr_grey']:.1f}){ssim}"


def drawn(images: Tensor) -> np.ndarray:
    """Converts images (n, C, height, width), uint8 or floats from 0 to 1, to uint8 arrays (n, height, width, C)."""
    pixels = images if images.dtype == torch.uint8 else images.mul(255).round().byte()
    return pixels.permute(0, 2, 3, 1).numpy()


def difference(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Absolute difference of two uint8 arrays of images, as uint8."""
    return np.abs(one.astype(int) - other).astype(np.uint8)

"""What attacks leave behind: a table of numbers, and for each model and attack a strip of pictures."""

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

Attacked = tuple[Cell, str, Result]  # a cell, the attack on it, what it found
SHOWN = 8  # pictures in a strip


def write_attacks(out: Path, answers: Sequence[Attacked], own: Sequence[Path] = ()) -> Path:
    """Writes ``results.csv``, and a PNG of the last of the attacks if it found something.

    If pictures were one's ``own``, their names stand where the name of an experiment does.
    """
    name = " ".join(["attack", *(picture.name for picture in own)])
    swept = list(dict.fromkeys(key for cell, _, _ in answers for key, _ in cell.varied))
    rows: list[tuple[Any, ...]] = []
    for cell, spec, answer in answers:
        fixed = name, cell.data, cell.model, cell.encoding, cell.seed, spec
        values = [dict(cell.varied).get(key, "") for key in swept]
        rows += [(*fixed, *row, *values) for row in result_rows(answer)]
    cell, spec, answer = answers[-1]
    if answer.images:
        found, goal = (drawn(answer.images[which][:SHOWN]) for which in ("reconstruction", "target"))
        strips = {
            f"to be found, {cell.label}": goal,
            f"found by {spec}, {nearness(answer.numbers, len(answer.images['reconstruction']))}": found,
            "difference": difference(found, goal),
        }
        if "trajectory" in answer.images:
            strips["how the first was found"] = drawn(answer.images["trajectory"][0])
        words = f"{len(answers) - 1:02} {cell.label} seed{cell.seed} {spec}"
        file = re.sub(r"[^A-Za-z0-9.]+", "-", words)[:100].strip("-")
        write_bytes(out / f"{file}.png", draw.png(draw.image_strips(strips)))
    return write_rows(out / "results.csv", rows, swept)


def nearness(numbers: Mapping[str, float], pictures: int) -> str:
    """How near an attack on so many pictures came, in words."""
    if not {"psnr", "psnr_grey"} <= set(numbers):
        return "not measured yet"
    alike = f", SSIM {numbers['ssim']:.2f}" if "ssim" in numbers else ""
    return f"mean of {pictures}: PSNR {numbers['psnr']:.1f} dB (grey {numbers['psnr_grey']:.1f}){alike}"


def drawn(pictures: Tensor) -> np.ndarray:
    """Pictures (n, C, height, width), bytes or numbers from 0 to 1, as they are drawn: bytes, channels last."""
    every = pictures if pictures.dtype == torch.uint8 else pictures.mul(255).round().byte()
    return every.permute(0, 2, 3, 1).numpy()


def difference(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """How far pictures of bytes are apart, as one of them."""
    return np.abs(one.astype(int) - other).astype(np.uint8)

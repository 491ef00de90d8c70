"""``vitpos convert``: another grid, patch size, position encoding or format of a checkpoint, each with a printed report."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from typer import Argument, Option

from vitpos.cli.checkpoint_options import Architecture, Trust
from vitpos.cli.device import Device
from vitpos.cli.plugins import Plugins
from vitpos.cli.sizes import parse_grid, parse_sides
from vitpos.errors import InputError

if TYPE_CHECKING:
    from vitpos.interop.step_reports import StepReport


def convert(
    checkpoint: Annotated[
        str,
        Argument(
            metavar="CHECKPOINT",
            help="timm:NAME, hf:NAME, a folder of timm, Hugging Face or save_pretrained, the folder or weights file of "
            "a model trained by vitpos, or a file of timm's weights with --architecture",
        ),
    ],
    out: Annotated[
        Path | None, Option(help="new file, or folder for timm and hf; without it nothing is written")
    ] = None,
    grid: Annotated[str | None, Option(metavar="RxC", help="rows and columns of patches, such as 24x24")] = None,
    patch: Annotated[str | None, Option(metavar="P", help="patch size in pixels, such as 8 or 8x16")] = None,
    window: Annotated[str | None, Option(metavar="W", help="side of the windows of a Swin, such as 12 or 6x12")] = None,
    encoding: Annotated[str | None, Option(metavar="SPEC", help="another position encoding")] = None,
    heal: Annotated[
        str | None,
        Option(
            metavar="DATA", help="distills the original model into the converted one on these images, without labels"
        ),
    ] = None,
    to: Annotated[Literal["vitpos", "timm", "hf", "onnx"], Option(help="format of the output")] = "vitpos",
    mode: Annotated[
        str | None,
        Option(
            help="interpolation of tables: bicubic, bilinear-antialias, timm (default), hf, dino, …; all compares them"
        ),
    ] = None,
    coords: Annotated[
        Literal["interpolate", "rebuild", "ntk"] | None,
        Option(help="coordinates on the new grid, for encodings that are computed from coordinates, such as rope"),
    ] = None,
    patch_mode: Annotated[
        str | None, Option(help="interpolation by which patches are resized; default: bilinear-antialias")
    ] = None,
    data: Annotated[
        str | None,
        Option(metavar="SPEC", help="data for the comparison with the original model; default: that of --heal"),
    ] = None,
    images: Annotated[int, Option(min=1, help="maximum number of test images of --data")] = 512,
    epochs: Annotated[float | None, Option(help="passes of the healing over the training images; default: 1")] = None,
    lr: Annotated[float | None, Option(help="peak learning rate of the healing; default: 0.001")] = None,
    dynamic_size: Annotated[
        bool, Option("--dynamic-size", help="for onnx: the graph takes images of any number of patches")
    ] = False,
    positions_as_inputs: Annotated[
        bool, Option("--positions-as-inputs", help="for onnx: positions of patches are inputs of the graph")
    ] = False,
    architecture: Architecture = None,
    as_json: Annotated[bool, Option("--json", help="print the reports as JSON")] = False,
    device: Device = None,
    trust: Trust = False,
    plugins: Plugins = None,
) -> None:
    """Change the grid, patch size, position encoding or format of a checkpoint; prints what changed and by how much."""
    if out is None and not any((grid, patch, window, encoding)):
        raise InputError("nothing to convert; give --out FILE, or --grid, --patch, --window or --encoding")
    if not any((grid, patch, window)):
        given = {"--mode": mode, "--coords": coords, "--patch-mode": patch_mode}
        _refuse(given, "is for another grid, patch size or window; add --grid, --patch or --window")
    if heal is None:
        _refuse({"--epochs": epochs, "--lr": lr}, "is for the healing; add --heal DATA")
    from vitpos.cli.progress import progress_bar
    from vitpos.lab.convert import convert as convert_model
    from vitpos.lab.heal import Healing

    healing = Healing(epochs=1.0 if epochs is None else epochs, lr=1e-3 if lr is None else lr)
    with progress_bar(1) as (bar, task):
        bar.update(task, description="healing" if heal else "converting")
        _, reports = convert_model(
            checkpoint,
            out=out,
            grid=parse_grid("--grid", grid) if grid else None,
            patch=parse_sides("--patch", patch) if patch else None,
            window=parse_sides("--window", window) if window else None,
            encoding=encoding,
            heal=heal,
            to=to,
            mode="timm" if mode is None else mode,
            coords=coords,
            patch_mode="bilinear-antialias" if patch_mode is None else patch_mode,
            data=data,
            images=images,
            healing=healing,
            architecture=architecture,
            dynamic_size=dynamic_size,
            positions_as_inputs=positions_as_inputs,
            on_batch=lambda done, total: bar.update(task, completed=done, total=total),
        )
    _show(reports, as_json=as_json)
    if out is not None:
        print(f"{'folder' if out.is_dir() else 'file'}: {out}", file=sys.stderr)


def _refuse(options: Mapping[str, object], reason: str) -> None:
    """Raises an InputError if one of some options is given."""
    for name, value in options.items():
        if value is not None:
            raise InputError(f"{name} {value} {reason}")


def _show(reports: list[StepReport], *, as_json: bool) -> None:
    """Prints the reports on standard output: as JSON, or a table of modes and one paragraph per step."""
    if as_json:
        print(json.dumps([report.to_json() for report in reports], indent=1, ensure_ascii=False))
        return
    from vitpos.cli.tables import show_numbers

    compared = [report for report in reports if report.step == "mode" and "norm_ratio" in report.numbers]
    if compared:
        show_numbers("mode", [(report.change, report.numbers) for report in compared])
    for report in reports:
        if not any(report is one for one in compared):
            _show_one(report)


def _show_one(report: StepReport) -> None:
    from vitpos.cli.tables import output

    output.print(f"{report.step}: {report.change}")
    for name, value in report.numbers.items():
        text = f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
        output.print(f"  {name.replace('_', ' '):<22} {text}")
    if report.note:
        output.print(f"  ({report.note})", style="dim")

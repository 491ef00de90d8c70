"""``vitpos evaluate``: more evaluations of a run, or evaluations of a checkpoint of timm, Hugging Face or vitpos."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from vitpos.cli.checkpoint_options import Architecture, Classes, Data, Trust
from vitpos.cli.device import Device
from vitpos.cli.plugins import Plugins
from vitpos.cli.reproducible import Reproducible
from vitpos.errors import InputError


def evaluate(
    source: Annotated[
        Path,
        Argument(
            metavar="RUN_OR_CHECKPOINT",
            help="folder of a run or of one of its trained models; or a weights file, a folder of Hugging Face or timm, "
            "timm:NAME or hf:NAME",
        ),
    ],
    specs: Annotated[list[str], Option("--with", metavar="SPEC", help="an evaluation, such as jigsaw(per='image')")],
    more: Annotated[list[str] | None, Argument(metavar="SPEC", help="further evaluations")] = None,
    data: Data = None,
    out: Annotated[Path | None, Option(help="output folder for the results of a checkpoint")] = None,
    architecture: Architecture = None,
    classes: Classes = None,
    as_json: Annotated[bool, Option("--json", help="print the numbers of a checkpoint as JSON")] = False,
    device: Device = None,
    reproducible: Reproducible = False,
    trust: Trust = False,
    plugins: Plugins = None,
) -> None:
    """Evaluate a run or a checkpoint: prints a table, and writes results.csv and report.html."""
    from vitpos.evaluations import EVALUATIONS
    from vitpos.lab.experiment_folder import load_run_plugins

    is_run = (source / "experiment.json").exists() or (source / "cell.json").exists()
    if is_run:
        load_run_plugins(source.resolve().parent.parent if (source / "cell.json").exists() else source)
    wanted = [EVALUATIONS.canonical(spec) for spec in (*specs, *(more or ()))]
    if not is_run:
        return _evaluate_checkpoint(source, wanted, data, out, architecture, classes, as_json=as_json)
    given = {"--data": data, "--out": out, "--architecture": architecture, "--classes": classes, "--json": as_json}
    if unused := [name for name, value in given.items() if value]:
        raise InputError(
            f"{source} is a run, which has data of its own and keeps its results; leave out {unused[0]}, or give the "
            "weights.safetensors of a cell"
        )
    from vitpos.cli.tables import show_evaluation
    from vitpos.lab.console import Console
    from vitpos.lab.evaluate import evaluate_run
    from vitpos.report import write_report

    with Console() as console:
        results, stored = evaluate_run(source, wanted, console)
    write_report([results], results.path / "report.html")
    for spec in stored:
        show_evaluation(results, spec)
    print(f"results: {results.path / 'results.csv'}", file=sys.stderr)


def _evaluate_checkpoint(
    source: Path,
    specs: list[str],
    data: str | None,
    out: Path | None,
    architecture: str | None,
    classes: Path | None,
    *,
    as_json: bool,
) -> None:
    """Evaluates a checkpoint, writes the results to ``out`` and prints a table, or the rows of ``results.csv`` as JSON."""
    from vitpos.cli.tables import show_evaluation
    from vitpos.interop.load import is_hub_name
    from vitpos.lab.console import Console
    from vitpos.lab.downloads import data_terms_of, download, missing_downloads
    from vitpos.lab.evaluate_checkpoint import evaluate_checkpoint, require_new_folder
    from vitpos.lab.open_models import open_checkpoint
    from vitpos.report import write_report

    if (source.is_dir() and not any(source.iterdir())) or not (is_hub_name(source) or source.exists()):
        raise InputError(
            f"{source} is neither the folder of an experiment nor of a cell, nor a checkpoint; give the --out of a "
            "'vitpos run', a weights file, timm:NAME or hf:NAME"
        )
    if out is None:
        raise InputError("option --out is missing; give a folder for the results of the checkpoint")
    require_new_folder(out)
    with Console() as console:
        download(missing_downloads(data_terms_of([data] if data else [], specs)), console)
        opened = open_checkpoint(source, data, architecture=architecture, classes=classes)
        for note in opened.notes:
            print(note, file=sys.stderr)
        command = shlex.join(["vitpos", *sys.argv[1:]])
        results, stored = evaluate_checkpoint(opened, specs, out, console, command)
    write_report([results], out / "report.html")
    if as_json:
        print(json.dumps({"notes": opened.notes, "rows": results.rows}, indent=2, ensure_ascii=False))
    for spec in () if as_json else stored:
        show_evaluation(results, spec)
    print(f"results: {out / 'results.csv'}\nreport:  {out / 'report.html'}", file=sys.stderr)

"""The commands ``vitpos run`` and ``vitpos report``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from vitpos.cli.checkpoint_options import Trust
from vitpos.cli.device import Device
from vitpos.cli.dry_run import DryRunOption, OutOption, require_out
from vitpos.cli.dry_run import dry_run as show_dry_run
from vitpos.cli.plugins import Plugins
from vitpos.cli.reproducible import Reproducible
from vitpos.errors import InputError, RunError
from vitpos.printable import sanitize


def run(
    experiment: Annotated[str, Argument(metavar="NAME_OR_TOML", help="a shipped experiment or a TOML file")],
    out: OutOption = None,
    settings: Annotated[
        list[str] | None,
        Option(
            "--set",
            metavar="KEY=VALUE",
            help="override a value, such as train.epochs=1 or encoding=learned; repeatable",
        ),
    ] = None,
    seeds: Annotated[str | None, Option(help="seeds that replace those of the experiment, such as 0,1,2")] = None,
    workers: Annotated[int | None, Option(min=1, help="parallel processes; default: one per core (GPU: one)")] = None,
    dry_run: DryRunOption = False,
    device: Device = None,
    reproducible: Reproducible = False,
    trust: Trust = False,
    plugins: Plugins = None,
) -> None:
    """Run an experiment, or continue it; prints tables and writes results.csv, report.html and a folder per training."""
    from vitpos.lab.experiment import Experiment
    from vitpos.lab.experiment_folder import load_run_plugins

    if out is not None:
        load_run_plugins(out)
    wanted = Experiment.load(experiment, settings or (), parse_seeds(seeds), plugins or ())
    if dry_run:
        return show_dry_run(wanted)
    out = require_out(out)
    from vitpos.cli.progress import RunProgress
    from vitpos.cli.tables import show_evaluation
    from vitpos.lab import runner
    from vitpos.lab.experiment_folder import ExperimentFolder
    from vitpos.report import write_report

    changed = (out / "experiment.json").exists() and ExperimentFolder.open(out).experiment.cells != wanted.cells
    failure: RunError | None = None
    with RunProgress() as progress:
        try:
            runner.run(wanted, out, workers=workers, observer=progress)
        except RunError as error:
            failure = error
    results = progress.results
    if results is None or not results.trained:
        raise failure or AssertionError("a run without cells")
    if changed:
        _note(
            f"note: {out} was run with other settings before; results and report show the new ones, older cells are kept"
        )
    progress.show(range(len(wanted.tables)), results)
    for spec in () if wanted.tables else dict.fromkeys(spec for cell in wanted.cells for spec in cell.evaluations):
        show_evaluation(results, spec)
    if (out / "results.csv").exists():
        _note(f"results: {out / 'results.csv'}")
    _note(f"report:  {write_report([results], out / 'report.html')}")
    if failure:
        raise failure


def report(
    folders: Annotated[list[Path], Argument(metavar="DIR…", help="folders of finished runs")],
    out: Annotated[Path, Option(metavar="FILE.html", help="path of the page")],
    trust: Trust = False,
    plugins: Plugins = None,
) -> None:
    """Write a self-contained HTML page on stored runs."""
    from vitpos.report import write_report

    _note(f"report: {write_report(folders, out)}")


def _note(text: str) -> None:
    print(text, file=sys.stderr)


def parse_seeds(text: str | None) -> list[int] | None:
    """Converts the value of ``--seeds``, such as "0,1,2", to a list of integers; None stays None."""
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdecimal() and len(part) < 20 and int(part) < 2**31 for part in parts):
        raise InputError(f"--seeds {sanitize(text)!r} is not a list of integers from 0 to 2³¹ − 1; write --seeds 0,1,2")
    return [int(part) for part in parts]

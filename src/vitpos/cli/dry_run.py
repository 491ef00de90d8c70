"""The option ``--dry-run``: tries an experiment on two images and prints what it would train, without writing anything."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from vitpos.errors import InputError

if TYPE_CHECKING:
    from vitpos.lab.experiment import Experiment

DryRunOption = Annotated[
    bool, Option("--dry-run", help="try every model and evaluation on two images and stop; needs no --out")
]
OutOption = Annotated[
    Path | None,
    Option(help="output folder; if it holds an unfinished run, that run is continued  [required without --dry-run]"),
]


def require_out(out: Path | None) -> Path:
    """Returns the value of ``--out``; raises an InputError if it is missing."""
    if out is None:
        raise InputError("option --out is missing; give the folder of the run, or --dry-run to write nothing")
    return out


def dry_run(experiment: Experiment) -> None:
    """Tries every configuration of an experiment on two images and prints a table of its trainings.

    Data sets that are missing are replaced by noise.
    """
    from vitpos.cli.tables import show_cells
    from vitpos.data import DOWNLOADS
    from vitpos.lab.console import Console
    from vitpos.lab.dry_run import dry_run
    from vitpos.lab.stand_ins import stand_ins

    missing = stand_ins(experiment.cells)
    with Console() as console:
        parameters = dry_run(experiment.cells, experiment.tables, console, missing)
    show_cells(parameters)
    for spec, noise in missing.items():
        reason = "would be downloaded" if spec.partition("(")[0] in DOWNLOADS else "is not on this machine"
        print(f"not checked: {spec} {reason}; {noise} was used in its place", file=sys.stderr)
    print("dry run passed; nothing was trained or written", file=sys.stderr)

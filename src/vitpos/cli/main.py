"""The commands of ``vitpos``. Messages and progress go to standard error, tables and JSON to standard output."""

from __future__ import annotations

import json
import signal
import sys
import warnings
from functools import cache
from pathlib import Path
from typing import Annotated, TextIO

import typer
from typer import Argument, Option

from vitpos.errors import InputError, RunError

PLUGINS = Annotated[
    list[str] | None,
    Option(
        "--plugin",
        metavar="FILE_OR_MODULE",
        help="Python file or module that registers encodings, models and so on; repeatable",
    ),
]
STOPPED = 130  # exit code after Ctrl-C, by the convention of shells


def _version(wanted: bool) -> None:
    if wanted:
        from vitpos import __version__

        print(f"vitpos {__version__}")
        raise typer.Exit


app = typer.Typer(
    help="Train, evaluate, attack and inspect position encodings of Vision Transformers.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback()
def options(
    version: Annotated[bool, Option("--version", is_eager=True, callback=_version, help="print the version")] = False,
) -> None:
    """Train, evaluate, attack and inspect position encodings of Vision Transformers."""


@app.command("list")
def list_(
    kind: Annotated[
        str,
        Argument(
            help="one of encodings, models, data, augments, evaluations, attacks, defenses, segmentation_sets, "
            "experiments; or all"
        ),
    ] = "all",
    name: Annotated[str | None, Argument(help="name of one entry, to print its full definition")] = None,
    as_json: Annotated[
        bool, Option("--json", help="print JSON: a list of objects with name, summary, options")
    ] = False,
    geometry: Annotated[
        str | None, Option(help="count the parameters of encodings, for dim=384,heads=6,depth=12,grid=14x14")
    ] = None,
    plugins: PLUGINS = None,
) -> None:
    """List all entries of a kind with their options, or print the full definition of one entry."""
    from vitpos.cli.list import KINDS, entries, explain, show
    from vitpos.registry import suggest

    _load(plugins)
    if kind not in (*KINDS, "all"):
        raise InputError(f"no kind {kind!r}; {suggest(kind, KINDS)}")
    kinds = KINDS if kind == "all" else (kind,)
    text = explain(kind, name) if name is not None else ""
    if as_json:
        found = [entry for k in kinds for entry in entries(k, geometry, name)]
        print(json.dumps(found, indent=1, ensure_ascii=False))
    elif text:
        print(text)
    else:
        for k in kinds:
            show(k, geometry)


@app.command()
def run(
    experiment: Annotated[str, Argument(metavar="NAME_OR_TOML", help="a shipped experiment or a TOML file")],
    out: Annotated[Path, Option(help="output folder; if it holds an unfinished run, that run is continued")],
    settings: Annotated[
        list[str] | None,
        Option(
            "--set",
            metavar="KEY=VALUE",
            help="override a value, such as train.epochs=1 or encoding=learned; repeatable",
        ),
    ] = None,
    seeds: Annotated[str | None, Option(help="seeds that replace those of the experiment, such as 0,1,2")] = None,
    workers: Annotated[int | None, Option(min=1, help="number of parallel processes; default: one per core")] = None,
    plugins: PLUGINS = None,
) -> None:
    """Run an experiment, or continue it; prints tables and writes results.csv, report.html and a folder per cell."""
    from vitpos.lab.experiment import Experiment
    from vitpos.registry.plugin_records import recall

    _load(plugins)
    recall(out)
    wanted = Experiment.load(experiment, settings or (), _seeds(seeds), plugins or ())
    from vitpos.cli.progress import RunProgress
    from vitpos.cli.tables import show_evaluation
    from vitpos.lab import runner
    from vitpos.lab.store import ExperimentFolder
    from vitpos.report import write_report

    other = (out / "experiment.json").exists() and ExperimentFolder.open(out).experiment.cells != wanted.cells
    failure: RunError | None = None
    with RunProgress() as progress:
        try:
            runner.run(wanted, out, workers=workers, observer=progress)
        except RunError as error:
            failure = error
    results = progress.results
    if results is None or not results.trained:
        raise failure or AssertionError("a run without cells")
    if other:
        print(
            f"note: {out} was run with other settings before; results and report show the new ones, older cells are kept",
            file=sys.stderr,
        )
    progress.show(range(len(wanted.tables)), results)
    for spec in () if wanted.tables else dict.fromkeys(spec for cell in wanted.cells for spec in cell.evaluations):
        show_evaluation(results, spec)
    print(f"results: {out / 'results.csv'}", file=sys.stderr)
    print(f"report:  {write_report([results], out / 'report.html')}", file=sys.stderr)
    if failure:
        raise failure


@app.command()
def evaluate(
    run: Annotated[Path, Argument(metavar="RUN", help="folder of an experiment, or of one of its cells")],
    specs: Annotated[list[str], Option("--with", metavar="SPEC", help="an evaluation, such as jigsaw(per='image')")],
    more: Annotated[list[str] | None, Argument(metavar="SPEC", help="further evaluations")] = None,
    plugins: PLUGINS = None,
) -> None:
    """Run more evaluations on a trained run and add the numbers to its results."""
    from vitpos.evaluations import EVALUATIONS
    from vitpos.registry.plugin_records import recall

    _load(plugins)
    recall(run.resolve().parent.parent if (run / "cell.json").exists() else run)
    wanted = [EVALUATIONS.canonical(spec) for spec in (*specs, *(more or ()))]
    from vitpos.cli.tables import show_evaluation
    from vitpos.lab.console import Console
    from vitpos.lab.runner import evaluate_run
    from vitpos.report import write_report

    with Console() as console:
        results, stored = evaluate_run(run, wanted, console)
    write_report([results], results.path / "report.html")
    for spec in stored:
        show_evaluation(results, spec)
    print(f"results: {results.path / 'results.csv'}", file=sys.stderr)


@app.command()
def attack(
    source: Annotated[
        Path,
        Argument(metavar="RUN_OR_CHECKPOINT", help="folder of an experiment or a cell, or a weights.safetensors file"),
    ],
    specs: Annotated[
        list[str],
        Option("--with", metavar="SPEC", help="an attack, such as closed_form or gradient_matching(steps=500)"),
    ],
    out: Annotated[Path, Option(help="output folder for numbers and images")],
    image_files: Annotated[
        list[Path] | None,
        Option(
            "--image",
            metavar="FILE",
            help="image that replaces the test images, with the label that the model predicts; repeatable",
        ),
    ] = None,
    more: Annotated[list[str] | None, Argument(metavar="SPEC", help="further attacks")] = None,
    plugins: PLUGINS = None,
) -> None:
    """Reconstruct images from the gradients of trained models; writes results.csv and a PNG per model and attack."""
    from vitpos.evaluations import ATTACKS

    _load(plugins)
    every = [term for spec in (*specs, *(more or ())) for term in ATTACKS.parse(spec)]
    from vitpos.cli.attack import attack_all

    attack_all(source, every, out, image_files or ())


@app.command()
def inspect(
    source: Annotated[
        Path,
        Argument(metavar="RUN_OR_CHECKPOINT", help="folder of a run or a cell, or a ViT checkpoint from any library"),
    ],
    out: Annotated[Path, Option(help="output folder for inspect.json, figures and an HTML page")],
    grid: Annotated[
        str | None, Option(help="rows and columns of patches, such as 14x14, for checkpoints that do not store them")
    ] = None,
    images: Annotated[int, Option(min=5, help="number of test images on which models of a run are inspected")] = 256,
    image_files: Annotated[
        list[Path] | None, Option("--image", metavar="FILE", help="image on which attention maps are drawn; repeatable")
    ] = None,
    extra: Annotated[
        bool, Option("--extra", help="also run UMAP, SVM and MLP (needs scikit-learn and umap-learn)")
    ] = False,
    plugins: PLUGINS = None,
) -> None:
    """Identify and analyze the position encoding of a model or checkpoint; writes numbers, figures and a page."""
    from vitpos.cli.inspect import inspect_command, read_grid

    _load(plugins)
    rows_columns = read_grid(grid) if grid is not None else None
    inspect_command([(source, rows_columns)], out, "inspect", images=images, files=image_files or (), extra=extra)


@app.command()
def compare(
    first: Annotated[Path, Argument(metavar="A", help="folder of a cell, or a checkpoint")],
    second: Annotated[Path, Argument(metavar="B", help="another one")],
    out: Annotated[Path, Option(help="output folder for numbers, figures and an HTML page")],
    grids: Annotated[
        list[str] | None,
        Option("--grid", help="rows and columns of patches, such as 14x14, as for inspect; give it twice for A and B"),
    ] = None,
    images: Annotated[int, Option(min=5, help="number of test images on which models of a run are inspected")] = 256,
    image_files: Annotated[
        list[Path] | None, Option("--image", metavar="FILE", help="image on which attention maps are drawn; repeatable")
    ] = None,
    extra: Annotated[
        bool, Option("--extra", help="also run UMAP, SVM and MLP (needs scikit-learn and umap-learn)")
    ] = False,
    plugins: PLUGINS = None,
) -> None:
    """Inspect two models or checkpoints and show the results side by side."""
    from vitpos.cli.inspect import inspect_command, read_grid

    _load(plugins)
    grid_list = [read_grid(text) for text in grids or ()]
    if len(grid_list) > 2:
        raise InputError(f"compare takes at most two --grid, not {len(grid_list)}; give one for both, or one for each")
    one, other = (grid_list[0], grid_list[-1]) if grid_list else (None, None)
    sources = [(first, one), (second, other)]
    inspect_command(sources, out, "compare", images=images, files=image_files or (), extra=extra, single=True)


@app.command()
def report(
    folders: Annotated[list[Path], Argument(metavar="DIR…", help="folders of finished runs")],
    out: Annotated[Path, Option(metavar="FILE.html", help="path of the page")],
    plugins: PLUGINS = None,
) -> None:
    """Write a self-contained HTML page on stored runs."""
    from vitpos.report import write_report

    _load(plugins)
    print(f"report: {write_report(folders, out)}", file=sys.stderr)


@app.command()
def data(
    action: Annotated[
        str, Argument(metavar="list|get|verify", help="list data sets, download them, or verify their checksums")
    ],
    names: Annotated[
        list[str] | None, Argument(metavar="NAME…", help="data sets, such as cifar10; default for list and verify: all")
    ] = None,
    as_json: Annotated[bool, Option("--json", help="for list: print JSON, a list of objects")] = False,
) -> None:
    """List, download or verify the data sets that are stored in files."""
    from vitpos.data import DOWNLOADS
    from vitpos.registry import suggest

    actions = ("list", "get", "verify")
    if action not in actions:
        raise InputError(f"no 'data {action}'; {suggest(action, actions)}")
    for name in names or ():
        if name not in DOWNLOADS:
            raise InputError(f"no downloadable data set {name!r}; {suggest(name, DOWNLOADS)}")
    if action == "get" and not names:
        raise InputError(
            f"the data sets to download are missing; write for example 'vitpos data get {list(DOWNLOADS)[-1]}'"
        )
    from vitpos.cli import data as command

    wanted = names or list(DOWNLOADS)
    if action == "list":
        command.show(wanted, as_json)
    elif action == "get":
        command.get(wanted)
    else:
        command.verify(wanted)


def _load(names: list[str] | None) -> None:
    """Imports plug-ins by name or path."""
    from vitpos.registry.plugins import load

    for name in names or ():
        load(name)


def _seeds(text: str | None) -> list[int] | None:
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdecimal() and int(part) < 2**31 for part in parts):
        raise InputError(f"--seeds {text!r} is not a list of integers from 0 to 2³¹ − 1; write --seeds 0,1,2")
    return [int(part) for part in parts]


def main() -> None:
    """Runs a command; prints errors in one line and exits with code 2 after a InputError, 1 after a RunError."""
    from typer.exceptions import Abort, TyperException

    warnings.showwarning = _note
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # so that worker processes end too
    try:
        code = app(standalone_mode=False)
    except InputError as error:
        code = _say(error, 2)
    except RunError as error:
        code = _say(error, 1)
    except TyperException as error:
        message = error.format_message()
        code = _say(message, error.exit_code) if not message.startswith("Usage") else print(message)
    except (KeyboardInterrupt, Abort):
        code = STOPPED
    if code == STOPPED:
        can_continue = sys.argv[1] in ("run", "evaluations", "data")
        print("stopped" + "; run the same command again to continue" * can_continue, file=sys.stderr)
    sys.exit(code)


@cache
def _once(message: str) -> None:
    print(message, file=sys.stderr)


def _note(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Prints a warning in one line; repeated warnings once."""
    _once(f"{'note' if category.__name__ == 'PluginWarning' else category.__name__}: {message}")


def _say(error: object, code: int) -> int:
    print(f"error: {error}", file=sys.stderr)
    return code

"""The command line. Messages and progress go to standard error; tables and JSON to standard output."""

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

from vitpos.errors import UserError, WorkError

PLUGINS = Annotated[
    list[str] | None,
    Option("--plugin", metavar="FILE_OR_MODULE", help="Python code that registers encodings and so on; repeatable"),
]
STOPPED = 130  # what a shell calls a command that Ctrl-C ended


def _version(asked: bool) -> None:
    if asked:
        from vitpos import __version__

        print(f"vitpos {__version__}")
        raise typer.Exit


app = typer.Typer(
    help="A laboratory for position in Vision Transformers.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback()
def options(
    version: Annotated[bool, Option("--version", is_eager=True, callback=_version, help="print the version")] = False,
) -> None:
    """A laboratory for position in Vision Transformers."""


@app.command("list")
def list_(
    kind: Annotated[
        str,
        Argument(help="encodings, models, data, augments, evaluations, attacks, defenses, scenes, experiments; or all"),
    ] = "all",
    name: Annotated[str | None, Argument(help="one of them, with its whole definition")] = None,
    as_json: Annotated[bool, Option("--json", help="a list of objects with name, summary, options")] = False,
    geometry: Annotated[
        str | None, Option(help="counts the parameters of encodings, as dim=384,heads=6,depth=12,grid=14x14")
    ] = None,
    plugins: PLUGINS = None,
) -> None:
    """List what there is, one line each with its options; of one thing, its whole definition."""
    from vitpos.cli.list import KINDS, entries, explain, show
    from vitpos.registry import suggest

    _load(plugins)
    if kind not in (*KINDS, "all"):
        raise UserError(f"there is no list of {kind!r}; {suggest(kind, KINDS)}")
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
    out: Annotated[Path, Option(help="the folder for everything it makes; given again, the run goes on")],
    settings: Annotated[
        list[str] | None, Option("--set", metavar="KEY=VALUE", help="as train.epochs=1 or encoding=learned; repeatable")
    ] = None,
    seeds: Annotated[str | None, Option(help="whole numbers, as 0,1,2")] = None,
    workers: Annotated[int | None, Option(min=1, help="processes that share the cells and cores; one per core")] = None,
    plugins: PLUGINS = None,
) -> None:
    """Run an experiment, or what is left of it: table, results.csv, report.html, a folder per cell."""
    from vitpos.lab.experiment import Experiment
    from vitpos.registry.plugin_records import recall

    _load(plugins)
    recall(out)
    wanted = Experiment.read(experiment, settings or (), _seeds(seeds), plugins or ())
    from vitpos.cli.progress import RunProgress
    from vitpos.cli.tables import show_evaluation
    from vitpos.lab import runner
    from vitpos.lab.store import ExperimentFolder
    from vitpos.report import write_report

    other = (out / "experiment.json").exists() and ExperimentFolder.open(out).experiment.cells != wanted.cells
    failure: WorkError | None = None
    with RunProgress() as progress:
        try:
            runner.run(wanted, out, workers=workers, observer=progress)
        except WorkError as error:
            failure = error
    results = progress.results
    if results is None or not results.trained:
        raise failure or AssertionError("a run without cells")
    if other:
        print(f"note: {out} held other settings; results and report now show these, older cells stay", file=sys.stderr)
    progress.show(range(len(wanted.tables)), results)
    for spec in () if wanted.tables else dict.fromkeys(spec for cell in wanted.cells for spec in cell.evaluate):
        show_evaluation(results, spec)
    print(f"results: {out / 'results.csv'}", file=sys.stderr)
    print(f"report:  {write_report([results], out / 'report.html')}", file=sys.stderr)
    if failure:
        raise failure


@app.command()
def evaluate(
    run: Annotated[Path, Argument(metavar="RUN", help="the folder of an experiment, or of one cell in it")],
    specs: Annotated[list[str], Option("--with", metavar="SPEC", help="an evaluation, as jigsaw(per='image')")],
    more: Annotated[list[str] | None, Argument(metavar="SPEC", help="further evaluations")] = None,
    plugins: PLUGINS = None,
) -> None:
    """Evaluate a finished run further; the numbers are added to its results."""
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
        Argument(metavar="RUN_OR_CHECKPOINT", help="the folder of an experiment or a cell, or weights.safetensors"),
    ],
    specs: Annotated[
        list[str], Option("--with", metavar="SPEC", help="an attack, as projection or matching(steps=500)")
    ],
    out: Annotated[Path, Option(help="the folder for numbers and images")],
    image_files: Annotated[
        list[Path] | None,
        Option(
            "--image",
            metavar="FILE",
            help="images of your own in place of the test images, each with the label that the model predicts; repeatable",
        ),
    ] = None,
    more: Annotated[list[str] | None, Argument(metavar="SPEC", help="further attacks")] = None,
    plugins: PLUGINS = None,
) -> None:
    """Reconstruct images from the gradients that trained models share: results.csv and a PNG for each model and attack."""
    from vitpos.evaluations import ATTACKS

    _load(plugins)
    every = [term for spec in (*specs, *(more or ())) for term in ATTACKS.parse(spec)]
    from vitpos.cli.attack import attack_all

    attack_all(source, every, out, image_files or ())


@app.command()
def inspect(
    source: Annotated[Path, Argument(metavar="RUN_OR_CHECKPOINT", help="a run, a cell, or anyone's ViT checkpoint")],
    out: Annotated[Path, Option(help="the folder for inspect.json, figures and a page")],
    grid: Annotated[str | None, Option(help="rows and columns, as 14x14, where a checkpoint cannot say")] = None,
    images: Annotated[int, Option(min=5, help="test images on which a run is watched")] = 256,
    image_files: Annotated[
        list[Path] | None, Option("--image", metavar="FILE", help="images on which a run's attention is drawn")
    ] = None,
    extra: Annotated[
        bool, Option("--extra", help="also UMAP, SVM and MLP (needs scikit-learn and umap-learn)")
    ] = False,
    plugins: PLUGINS = None,
) -> None:
    """Which encoding is it, and what did it learn? Numbers, figures and a page."""
    from vitpos.cli.inspect import inspect_command, read_grid

    _load(plugins)
    asked = read_grid(grid) if grid is not None else None
    inspect_command([(source, asked)], out, "inspect", images=images, files=image_files or (), extra=extra)


@app.command()
def compare(
    first: Annotated[Path, Argument(metavar="A", help="a cell of a run, or a checkpoint")],
    second: Annotated[Path, Argument(metavar="B", help="another")],
    out: Annotated[Path, Option(help="the folder for numbers, figures and a page")],
    grids: Annotated[
        list[str] | None,
        Option("--grid", help="rows and columns, as 14x14, where a checkpoint cannot say; twice: of A, of B"),
    ] = None,
    images: Annotated[int, Option(min=5, help="test images on which runs are watched")] = 256,
    image_files: Annotated[
        list[Path] | None, Option("--image", metavar="FILE", help="images on which runs' attention is drawn")
    ] = None,
    extra: Annotated[
        bool, Option("--extra", help="also UMAP, SVM and MLP (needs scikit-learn and umap-learn)")
    ] = False,
    plugins: PLUGINS = None,
) -> None:
    """Two models or checkpoints side by side: what they learned of position."""
    from vitpos.cli.inspect import inspect_command, read_grid

    _load(plugins)
    asked = [read_grid(text) for text in grids or ()]
    if len(asked) > 2:
        raise UserError(f"compare got {len(asked)} grids for two; give one for both, or one for each")
    one, other = (asked[0], asked[-1]) if asked else (None, None)
    sources = [(first, one), (second, other)]
    inspect_command(sources, out, "compare", images=images, files=image_files or (), extra=extra, single=True)


@app.command()
def report(
    folders: Annotated[list[Path], Argument(metavar="DIR…", help="folders of finished runs")],
    out: Annotated[Path, Option(metavar="FILE.html", help="the page to write")],
    plugins: PLUGINS = None,
) -> None:
    """One self-contained HTML page of stored runs."""
    from vitpos.report import write_report

    _load(plugins)
    print(f"report: {write_report(folders, out)}", file=sys.stderr)


@app.command()
def data(
    action: Annotated[str, Argument(metavar="list|get|verify", help="what there is; fetch; check against the hashes")],
    names: Annotated[list[str] | None, Argument(metavar="NAME…", help="data sets, as cifar10; none: all")] = None,
    as_json: Annotated[bool, Option("--json", help="for list: a list of objects")] = False,
) -> None:
    """Data sets that are kept in files: list them, fetch them, verify them."""
    from vitpos.data import DOWNLOADS
    from vitpos.registry import suggest

    actions = ("list", "get", "verify")
    if action not in actions:
        raise UserError(f"there is no 'data {action}'; {suggest(action, actions)}")
    for name in names or ():
        if name not in DOWNLOADS:
            raise UserError(f"no data set {name!r} is kept in files; {suggest(name, DOWNLOADS)}")
    if action == "get" and not names:
        raise UserError(f"say what to get, as in 'vitpos data get {list(DOWNLOADS)[-1]}'")
    from vitpos.cli import data as command

    wanted = names or list(DOWNLOADS)
    if action == "list":
        command.show(wanted, as_json)
    elif action == "get":
        command.get(wanted)
    else:
        command.verify(wanted)


def _load(names: list[str] | None) -> None:
    """Imports the plug-ins that were given."""
    from vitpos.registry.plugins import load

    for name in names or ():
        load(name)


def _seeds(text: str | None) -> list[int] | None:
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdecimal() and int(part) < 2**31 for part in parts):
        raise UserError(f"--seeds {text!r} is not a list of whole numbers; write --seeds 0,1,2")
    return [int(part) for part in parts]


def main() -> None:
    """Runs a command; a mistake of the user's is one line and exit code 2, a failure at work one line and 1."""
    from typer.exceptions import Abort, TyperException

    warnings.showwarning = _note
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # so that workers end with us
    try:
        code = app(standalone_mode=False)
    except UserError as error:
        code = _say(error, 2)
    except WorkError as error:
        code = _say(error, 1)
    except TyperException as error:
        message = error.format_message()
        code = _say(message, error.exit_code) if not message.startswith("Usage") else print(message)
    except (KeyboardInterrupt, Abort):
        code = STOPPED
    if code == STOPPED:
        goes_on = sys.argv[1] in ("run", "evaluate", "data")
        print("stopped" + "; the same command goes on from here" * goes_on, file=sys.stderr)
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
    """Prints a warning as one line, and once."""
    _once(f"{'note' if category.__name__ == 'PluginWarning' else category.__name__}: {message}")


def _say(error: object, code: int) -> int:
    print(f"error: {error}", file=sys.stderr)
    return code

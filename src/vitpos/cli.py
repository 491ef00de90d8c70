"""The command line. Messages and progress go to standard error; tables and JSON to standard output."""

from __future__ import annotations

import json
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from vitpos.errors import UserError, WorkError

STOPPED = 130  # what a shell calls a command that Ctrl-C ended
app = typer.Typer(
    help="A laboratory for position in Vision Transformers.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.command("list")
def list_(
    kind: Annotated[
        str,
        Argument(help="encodings, models, data, augments, evaluations, attacks, defences, scenes, experiments; or all"),
    ] = "all",
    name: Annotated[str | None, Argument(help="one of them, with its whole definition")] = None,
    as_json: Annotated[bool, Option("--json", help="a list of objects with name, summary, options")] = False,
    geometry: Annotated[
        str | None, Option(help="counts the parameters of encodings, as dim=384,heads=6,depth=12,grid=14x14")
    ] = None,
) -> None:
    """What there is, one line each with its options; of one thing, all that is said of it."""
    from vitpos.catalog import suggest
    from vitpos.listing import KINDS, entries, explain, show

    if kind not in (*KINDS, "all"):
        raise UserError(f"there is no list of {kind!r}; {suggest(kind, KINDS)}")
    kinds = KINDS if kind == "all" else (kind,)
    text = explain(kind, name) if name is not None else ""
    if as_json:
        found = [entry for k in kinds for entry in entries(k, geometry) if name in (None, entry["name"])]
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
) -> None:
    """Run an experiment, or what is left of it: table, results.csv, report.html, a folder per cell."""
    from vitpos.experiment import Experiment

    asked = Experiment.read(experiment, settings or (), _seeds(seeds))
    from vitpos import lab
    from vitpos.fetching import fetch_for
    from vitpos.progress import Progress, show_answers
    from vitpos.report import write_report
    from vitpos.store import Folder

    other = (out / "experiment.json").exists() and Folder.open(out).experiment.cells != asked.cells
    fetch_for(asked.cells)
    failure: WorkError | None = None
    with Progress() as progress:
        try:
            lab.run(asked, out, workers=workers, watch=progress)
        except WorkError as error:
            failure = error
    if not (out / "experiment.json").exists() or not (folder := Folder.open(out)).runs:
        raise failure or AssertionError("a run without cells")
    if other:
        print(f"note: {out} held other settings; results and report now show these, older cells stay", file=sys.stderr)
    progress.show(range(len(asked.tables)), folder)
    for spec in () if asked.tables else dict.fromkeys(spec for cell in asked.cells for spec in cell.evaluate):
        show_answers(folder, spec)
    print(f"results: {out / 'results.csv'}", file=sys.stderr)
    print(f"report:  {write_report([out], out / 'report.html')}", file=sys.stderr)
    if failure:
        raise failure


@app.command()
def evaluate(
    run: Annotated[Path, Argument(metavar="RUN", help="the folder of an experiment, or of one cell in it")],
    specs: Annotated[list[str], Option("--with", metavar="SPEC", help="an evaluation, as jigsaw(per='image')")],
    more: Annotated[list[str] | None, Argument(metavar="SPEC", help="further evaluations")] = None,
) -> None:
    """Ask more of a finished run; the answers are added to its scores."""
    from vitpos.questions import QUESTIONS

    asked = [QUESTIONS.canonical(spec) for spec in (*specs, *(more or ()))]
    from vitpos import lab
    from vitpos.fetching import fetch_for
    from vitpos.progress import show_answers
    from vitpos.report import write_report
    from vitpos.store import Folder, Run, only_one

    path = run.resolve()
    if (path / "experiment.json").exists():
        folder = Folder.open(path)
        runs = [r for _, r in folder.runs]
    elif (path / "cell.json").exists():
        folder = Folder.open(path.parent.parent)
        runs = [Run(path)] if Run(path).trained else []
    else:
        raise UserError(f"{run} is neither the folder of an experiment nor of a cell; give the --out of a 'vitpos run'")
    if not runs:
        raise UserError(f"{run} has no trained cell yet; finish it with 'vitpos run'")
    known = list(dict.fromkeys(spec for r in runs for spec in r.scores))
    wanted = list(dict.fromkeys(QUESTIONS.spelt(spec, known) for spec in asked))
    cells = [replace(r.cell, evaluate=tuple(wanted)) for r in runs]
    fetch_for(cells)
    lab.check(cells)
    with only_one(folder.path):
        for one in runs:
            lab.evaluate(one, wanted)
        folder.write_results()
        write_report([folder.path], folder.path / "report.html")
    for spec in wanted:
        show_answers(folder, spec)
    print(f"results: {folder.path / 'results.csv'}", file=sys.stderr)


@app.command()
def attack(
    source: Annotated[
        Path,
        Argument(metavar="RUN_OR_CHECKPOINT", help="the folder of an experiment or a cell, or weights.safetensors"),
    ],
    specs: Annotated[
        list[str], Option("--with", metavar="SPEC", help="an attack, as projection or matching(steps=500)")
    ],
    out: Annotated[Path, Option(help="the folder for numbers and pictures")],
    pictures: Annotated[
        list[Path] | None,
        Option(
            "--image",
            metavar="FILE",
            help="pictures of your own in place of the test's, each with the label that the model gives it; repeatable",
        ),
    ] = None,
    more: Annotated[list[str] | None, Argument(metavar="SPEC", help="further attacks")] = None,
) -> None:
    """Rebuild pictures from the gradients that trained models share: results.csv and a PNG for each model and attack."""
    from vitpos.attacks import ATTACKS

    every = [term for spec in (*specs, *(more or ())) for term in ATTACKS.parse(spec)]
    from vitpos.attacking import attack_all

    attack_all(source, every, out, pictures or ())


@app.command()
def inspect(
    source: Annotated[Path, Argument(metavar="RUN_OR_CHECKPOINT", help="a run, a cell, or anyone's ViT checkpoint")],
    out: Annotated[Path, Option(help="the folder for inspect.json, figures and a page")],
    grid: Annotated[str | None, Option(help="rows and columns, as 14x14, where a checkpoint cannot say")] = None,
    images: Annotated[int, Option(min=5, help="test images on which a run is watched")] = 256,
    pictures: Annotated[
        list[Path] | None, Option("--image", metavar="FILE", help="pictures on which a run's attention is drawn")
    ] = None,
    slow: Annotated[bool, Option("--slow", help="also UMAP, SVM and MLP (pip install 'vitpos[analysis]')")] = False,
) -> None:
    """Which encoding is it, and what did it learn? Numbers, figures and a page."""
    from vitpos.looking import inspect_command, read_grid

    asked = read_grid(grid) if grid is not None else None
    inspect_command([(source, asked)], out, "inspect", images=images, files=pictures or (), extra=slow)


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
    pictures: Annotated[
        list[Path] | None, Option("--image", metavar="FILE", help="pictures on which runs' attention is drawn")
    ] = None,
    slow: Annotated[bool, Option("--slow", help="also UMAP, SVM and MLP (pip install 'vitpos[analysis]')")] = False,
) -> None:
    """Two models or checkpoints side by side: what they learned of position."""
    from vitpos.looking import inspect_command, read_grid

    asked = [read_grid(text) for text in grids or ()]
    if len(asked) > 2:
        raise UserError(f"compare got {len(asked)} grids for two; give one for both, or one for each")
    one, other = (asked[0], asked[-1]) if asked else (None, None)
    sources = [(first, one), (second, other)]
    inspect_command(sources, out, "compare", images=images, files=pictures or (), extra=slow, single=True)


@app.command()
def report(
    folders: Annotated[list[Path], Argument(metavar="DIR…", help="folders of finished runs")],
    out: Annotated[Path, Option(metavar="FILE.html", help="the page to write")],
) -> None:
    """One self-contained HTML page of stored runs."""
    from vitpos.report import write_report

    print(f"report: {write_report(folders, out)}", file=sys.stderr)


@app.command()
def data(
    action: Annotated[str, Argument(metavar="list|get|verify", help="what there is; fetch; check against the hashes")],
    names: Annotated[list[str] | None, Argument(metavar="NAME…", help="data sets, as cifar10; none: all")] = None,
    as_json: Annotated[bool, Option("--json", help="for list: a list of objects")] = False,
) -> None:
    """Data sets that are kept in files: list them, fetch them, verify them."""
    from vitpos.catalog import suggest
    from vitpos.data import STORED

    actions = ("list", "get", "verify")
    if action not in actions:
        raise UserError(f"there is no 'data {action}'; {suggest(action, actions)}")
    for name in names or ():
        if name not in STORED:
            raise UserError(f"no data set {name!r} is kept in files; {suggest(name, STORED)}")
    if action == "get" and not names:
        raise UserError(f"say what to get, as in 'vitpos data get {next(reversed(STORED))}'")
    from vitpos import fetching

    wanted = names or list(STORED)
    if action == "list":
        fetching.show(wanted, as_json)
    elif action == "get":
        fetching.get(wanted)
    else:
        fetching.verify(wanted)


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


def _say(error: object, code: int) -> int:
    print(f"error: {error}", file=sys.stderr)
    return code

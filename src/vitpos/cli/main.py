"""The command ``vitpos``: its subcommands, error messages and exit codes.

Messages and progress go to standard error, tables and JSON to standard output. Command modules import torch and the
registries only when their command runs, so that ``--help`` is fast.
"""

from __future__ import annotations

import os
import signal
import sys
import warnings
from functools import cache
from typing import Annotated, TextIO

import typer

from vitpos.cli import attack, claims, convert, data, evaluate, inspect, leaderboard, run
from vitpos.cli import list as list_module
from vitpos.cli.error_log import log_unexpected
from vitpos.errors import InputError, Notice, RunError
from vitpos.printable import printable

STOPPED = 130  # exit code after Ctrl-C, by the convention of shells

app = typer.Typer(
    help="Train, evaluate, attack, inspect and convert position encodings of Vision Transformers.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("list")(list_module.list_entries)
for command in (
    run.run,
    evaluate.evaluate,
    leaderboard.score,
    leaderboard.leaderboard,
    claims.claims,
    attack.attack,
    inspect.inspect,
    inspect.compare,
    convert.convert,
    run.report,
    data.data,
):
    app.command()(command)


def _version(wanted: bool) -> None:
    if wanted:
        from vitpos import __version__

        print(f"vitpos {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_version, help="print the version")
    ] = False,
) -> None:
    """Train, evaluate, attack, inspect and convert position encodings of Vision Transformers."""


class _Terminated(BaseException):
    """Raised on SIGTERM; unlike a SystemExit, which a plug-in may raise, it ends the whole run."""


def _terminate(number: int, frame: object) -> None:
    raise _Terminated


def main() -> None:
    """Runs the command line ``vitpos``; prints errors in one line.

    The exit code is 2 after an InputError, 1 after a RunError and 130 after Ctrl-C. After any other exception it is 1, and
    the line gives the path of a log with the traceback.
    """
    from typer.exceptions import Abort, TyperException

    warnings.showwarning = _show_warning
    signal.signal(signal.SIGTERM, _terminate)  # so that worker processes end too
    try:
        if "" in sys.argv[1:]:
            raise InputError("an argument is empty; is a variable of the shell not set?")
        code = app(standalone_mode=False)
    except (InputError, RunError) as error:
        print(f"error: {printable(error)}", file=sys.stderr)
        code = 2 if isinstance(error, InputError) else 1
    except TyperException as error:
        message = error.format_message()
        is_help = message.startswith("Usage")  # 'vitpos' without a command
        print(message if is_help else f"error: {printable(message)}", file=sys.stdout if is_help else sys.stderr)
        code = 0 if is_help else error.exit_code
    except (KeyboardInterrupt, Abort):
        code = STOPPED
    except _Terminated:
        code = 128 + signal.SIGTERM
    except BrokenPipeError:  # the reader of the output has ended, as 'head' does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    except OSError as error:
        what = printable(error.filename or "a file")
        print(f"error: {what}: {error.strerror or error}; fix it and try again", file=sys.stderr)
        code = 1
    except Exception as error:
        print(f"error: {log_unexpected(error)}", file=sys.stderr)
        code = 1
    if code == STOPPED:
        can_continue = sys.argv[1] in ("run", "evaluate", "score", "data")
        print("stopped" + "; run the same command again to continue" * can_continue, file=sys.stderr)
    sys.exit(code)


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Prints a warning in one line on standard error; replaces ``warnings.showwarning`` and prints equal messages once."""
    text = " ".join(printable(message).splitlines())
    _print_once(f"{'note' if issubclass(category, Notice) else category.__name__}: {text}")


@cache
def _print_once(message: str) -> None:
    print(message, file=sys.stderr)

"""``python -m vitpos.testing ENCODING``: checks the contract of a position encoding and prints a table."""

from __future__ import annotations

import argparse
import sys

import torch

from vitpos.errors import InputError
from vitpos.registry import plugins
from vitpos.testing import run_checks, subject_for
from vitpos.testing.checks import CHECKS


def main() -> None:
    """Checks the encoding given on the command line and prints a line per check; the exit code is 1 if a check fails."""
    parser = argparse.ArgumentParser(prog="python -m vitpos.testing", description=main.__doc__)
    parser.add_argument("encoding", help="a spec, as rope(base=10) or mine.py:Class(option=1)")
    parser.add_argument("--plugin", action="append", default=[], help="a file or module that registers the encoding")
    parser.add_argument("--export", action="store_true", help="also checks torch.export")
    given = parser.parse_args()
    torch.set_num_threads(1)  # several threads are slower on models this small
    try:
        for name in given.plugin:
            plugins.load_plugin(name)
        subject = subject_for(given.encoding, None, {})
        failed = count = 0
        first: dict[str, str] = {}  # error → the first check that found it
        for name, broken in run_checks(subject, export=given.export):
            failed, count = failed + bool(broken), count + 1
            promise = (CHECKS[name].__doc__ or "").removeprefix("Checks that an encoding ").rstrip(".")
            shown = broken if first.setdefault(broken, name) == name else f"same error as in {first[broken]}"
            print(f"{'FAILED' if broken else 'ok':6}  {name:12}  {shown if broken else promise}")
        if subject.traits is None:
            print("–       traits        left out: a class declares them for its default options, without a sum")
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    print(f"{subject.name}: " + (f"{failed} of {count} checks failed" if failed else f"all {count} checks passed"))
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()

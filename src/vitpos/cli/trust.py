"""The options ``--trust`` and ``--data`` of commands that read runs and weights files, which may be from anybody."""

from __future__ import annotations

from typing import Annotated

from typer import Option


def _trust(wanted: bool) -> bool:
    """Lifts the limits on what files may name, while options are parsed; returns ``wanted``, as a callback must."""
    if wanted:
        from vitpos.lab.trust import trust_everything

        trust_everything()
    return wanted


Trust = Annotated[
    bool,
    Option(
        "--trust",
        callback=_trust,
        is_eager=True,
        help="read the data and import the plug-ins that a run or weights file from elsewhere names",
    ),
]
Data = Annotated[
    str | None, Option(metavar="SPEC", help="data set in place of the one that a run or weights file names")
]

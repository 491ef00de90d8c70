"""The option ``--plugin`` of most commands: a Python file or module that registers encodings, models and so on."""

from __future__ import annotations

from typing import Annotated

from typer import Option


def _load(names: list[str] | None) -> list[str] | None:
    """Imports the files or modules given by ``--plugin`` while options are parsed, before the command runs.

    Returns ``names`` unchanged, as the callback of an option must.
    """
    from vitpos.registry.plugins import load_plugin

    for name in names or ():
        load_plugin(name)
    return names


Plugins = Annotated[
    list[str] | None,
    Option(
        "--plugin",
        metavar="FILE_OR_MODULE",
        callback=_load,
        help="Python file or module that registers encodings, models and so on; repeatable",
    ),
]

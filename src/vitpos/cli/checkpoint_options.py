"""Options of commands that read runs and checkpoints: ``--trust``, ``--data``, ``--architecture``, ``--classes``."""

from __future__ import annotations

from pathlib import Path
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
        help="trust the files: open the data and import the code that a run, a weights file or a folder of save_pretrained "
        "names (like trust_remote_code)",
    ),
]
Data = Annotated[
    str | None,
    Option(
        metavar="SPEC",
        help="data set; required for checkpoints of timm and Hugging Face, else in place of the one of the training",
    ),
]
Architecture = Annotated[
    str | None,
    Option(
        metavar="NAME",
        help="timm model name, for a weights file without configuration; with a tag, as in vit_base_patch16_224.mae, also "
        "the mean, standard deviation and crop of that tag",
    ),
]
Classes = Annotated[
    Path | None,
    Option(metavar="FILE", help="names of the outputs of a checkpoint: one per line, a JSON list or JSON id → name"),
]

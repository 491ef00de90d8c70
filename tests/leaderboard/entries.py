"""Entries with made-up numbers, for tests of what is done with them."""

import random

from vitpos.encodings import ENCODINGS
from vitpos.leaderboard.entry import Entry
from vitpos.leaderboard.entry_checks import family_of_spec
from vitpos.leaderboard.protocol import Protocol

PROTOCOL = Protocol.load("vitpos-1")


def made(encoding, seeds=(0, 1, 2), accuracy=0.7, noise=0.002, quick=False, time=1.1):
    draw = random.Random(f"{encoding} {noise}")
    numbers = {}
    for key, column in PROTOCOL.columns.items():
        value = {"count": 4096.0, "ratio": time, "fraction": 0.5}[column.unit]
        numbers[key] = {seed: value if column.unit != "fraction" else value + draw.gauss(0, noise) for seed in seeds}
    numbers["accuracy"] = {seed: accuracy + 0.004 * (seed % 3) + draw.gauss(0, noise) for seed in seeds}
    return Entry(
        protocol=PROTOCOL.name,
        protocol_sha256=PROTOCOL.sha256,
        encoding=encoding,
        family=family_of_spec(encoding),
        summary="Rotates queries and keys.",
        paper="Su et al., 2021",
        code={term.name: "0" * 64 for term in ENCODINGS.parse(encoding)},
        numbers=numbers,
        training_losses={**PROTOCOL.training_losses, encoding: PROTOCOL.training_losses.get(encoding, 2.18)},
        machine={"processor": "made up"},
        maps={"mean logit of a central patch": [[[0.0, 1.0], [0.5, -1.0]]]},
        quick=quick,
    )

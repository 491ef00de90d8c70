"""Every entry in ``results/leaderboard`` is valid, and the learning rates of the protocol are those of its pilot."""

import csv
from pathlib import Path

import pytest

from vitpos.leaderboard.board import Board
from vitpos.leaderboard.entry import load_entry
from vitpos.leaderboard.protocol import Protocol, protocols
from vitpos.report.leaderboard_page import markdown

RESULTS = Path(__file__).parents[2] / "results"
FOLDER = RESULTS / "leaderboard"


@pytest.mark.parametrize("name", protocols())
def test_every_published_entry_is_valid(name):
    files = sorted((FOLDER / name).glob("*.json"))  # several may have seeds of one encoding
    board = Board.load(files, Protocol.load(name))
    assert {entry.encoding for entry in board.entries} == {load_entry(file).encoding for file in files}
    assert not any(entry.quick for entry in board.entries)


@pytest.mark.parametrize("name", [name for name in protocols() if (FOLDER / name).is_dir()])
def test_the_published_table_is_that_of_the_entries(name):
    board = Board.load([FOLDER / name], Protocol.load(name))
    written = (FOLDER / name / "README.md").read_text()
    assert written == markdown(board, FOLDER / name), (
        f"vitpos leaderboard --protocol {name} --out results/leaderboard/{name}/README.md writes it"
    )


@pytest.mark.parametrize(
    ("family", "encoding"), [("added", "learned"), ("bias", "relative"), ("rotary", "rope"), ("context", "sape2")]
)
def test_the_learning_rate_of_a_family_is_the_best_of_the_pilot(family, encoding):
    with (RESULTS / "vitpos-1-pilot.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["encoding"] == encoding]
    best = max(rows, key=lambda row: float(row["value"]))
    assert len(rows) == 3 and float(best["train.lr"]) == Protocol.load("vitpos-1").learning_rates[family]

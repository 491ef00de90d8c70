"""Every entry in ``results/leaderboard`` is valid."""

from pathlib import Path

import pytest

from vitpos.leaderboard.board import Board
from vitpos.leaderboard.protocol import Protocol, protocols

FOLDER = Path(__file__).parents[2] / "results" / "leaderboard"


@pytest.mark.parametrize("name", protocols())
def test_every_published_entry_is_valid(name):
    entries = sorted((FOLDER / name).glob("*.json"))
    board = Board.load(entries, Protocol.load(name))
    assert len(board.entries) == len(entries) and not any(entry.quick for entry in board.entries)

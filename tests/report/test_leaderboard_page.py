"""The pages of the leaderboard: HTML with plots and a page per entry, and a Markdown table."""

import re
from dataclasses import replace

import pytest

from tests.leaderboard.entries import PROTOCOL, made
from vitpos.leaderboard.board import Board
from vitpos.leaderboard.protocol import Protocol, protocols
from vitpos.report.leaderboard_page import markdown, write_leaderboard

ENTRIES = [made("rope"), made("none", accuracy=0.6), made("learned", seeds=(0,))]


def test_the_table_has_a_row_per_entry_and_names_what_is_missing(tmp_path):
    for entry in ENTRIES[1:]:
        entry.save(tmp_path)
    text = markdown(Board(PROTOCOL, [*ENTRIES, made("cpe", quick=True)]), tmp_path)
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith(("| 1", "| 2", "| –"))]
    assert [row[1] for row in rows] == ["`rope`", "[`none`](none.json)", "[`learned`](learned.json)", "`cpe` (quick)"]
    assert text.splitlines()[2].startswith("3 position encodings")
    rows.pop()
    assert [row[0] for row in rows] == ["| 1", "| 2", "| –"] and [row[3] for row in rows] == ["3", "3", "1"]
    assert "`learned` 1, 2" in text and "`liere`" in text.split("without an entry")[1]
    assert len({len(row) for row in rows}) == 1


@pytest.mark.parametrize("name", protocols())
def test_every_column_is_defined_and_every_missing_number_has_a_reason(name):
    protocol = Protocol.load(name)
    text = markdown(Board(protocol, []))
    for column in protocol.columns.values():
        (definition,) = re.findall(rf"^- \*\*{re.escape(column.title)}\*\*: (.*) \(`", text, re.MULTILINE)
        assert definition.endswith(".") and len(definition.split()) > 3


def test_the_reasons_for_missing_numbers_are_below_the_table():
    entry = made("alibi")
    rest = {key: by_seed for key, by_seed in entry.numbers.items() if key != "order"}
    without = replace(entry, numbers=rest, reasons={"order": "no vectors"})
    (reason,) = re.findall(r"^- No number in \*(.*)\*: (.*)\.$", markdown(Board(PROTOCOL, [without])), re.MULTILINE)
    assert reason == (PROTOCOL.columns["order"].title, "no vectors (`alibi`)")


def test_code_that_an_entry_names_is_not_imported(tmp_path, monkeypatch):
    (tmp_path / "evil.py").write_text("open('imported', 'w')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for spec in ("evil.py:X", "evil:X"):
        losses = {**PROTOCOL.training_losses, spec: 2.18}
        replace(made("rope"), encoding=spec, code={spec: "0"}, training_losses=losses).save(tmp_path / "entries")
    board = Board.load([tmp_path / "entries"], PROTOCOL)
    write_leaderboard(board, tmp_path / "board.html")
    write_leaderboard(board, tmp_path / "board.md")
    assert len(board.entries) == 2 and not (tmp_path / "imported").exists()


def test_a_page_links_to_a_page_per_entry(tmp_path):
    page = write_leaderboard(Board(PROTOCOL, ENTRIES), tmp_path / "board.html").read_text()
    for entry in ENTRIES:
        name = f"board/{entry.encoding}.html"
        assert f'href="{name}"' in page and entry.paper in (tmp_path / name).read_text()
    assert page.count("<title>rope</title>") == sum(
        column.unit != "count" and key != "accuracy" for key, column in PROTOCOL.columns.items()
    )


def test_names_are_written_for_baselines_and_for_what_no_other_encoding_surpasses(tmp_path):
    fast, exact, dominated = made("alibi", accuracy=0.65, time=0.9), made("liere", accuracy=0.8), made("cope", time=1.4)
    page = write_leaderboard(Board(PROTOCOL, [*ENTRIES, fast, exact, dominated]), tmp_path / "board.html").read_text()
    first = page.split("<svg")[1]  # accuracy against the time of a training step
    assert all(f"<!-- {name} -->" in first for name in ("alibi", "liere", "none", "learned", "rope"))
    assert "<!-- cope -->" not in first and "<title>cope</title>" in first

"""The leaderboard: order, groups, recommendations, what is missing, and the files that it is read from."""

from dataclasses import replace

import pytest

from tests.leaderboard.entries import PROTOCOL, made
from vitpos.errors import InputError
from vitpos.leaderboard.board import Board, format_measure
from vitpos.leaderboard.entry import load_entry
from vitpos.leaderboard.protocol import Protocol

SPREAD = {"none": 0.60, "learned": 0.70, "rope": 0.72, "sape2": 0.701}


def board(**changes):
    return Board(PROTOCOL, [made(name, accuracy=value, **changes) for name, value in SPREAD.items()])


def test_entries_are_ranked_by_the_first_column():
    found = board()
    assert [entry.encoding for entry in found.entries] == ["rope", "sape2", "learned", "none"]
    assert [found.rank(entry) for entry in found.entries] == [1, 2, 3, 4]
    groups = {entry.encoding: found.group(entry) for entry in found.entries}
    assert groups["learned"] == groups["sape2"] and len(set(groups.values())) == 3


def test_one_seed_and_quick_entries_are_shown_without_rank():
    entries = [made("none", accuracy=0.6), made("rope", accuracy=0.7)]
    found = Board(PROTOCOL, [*entries, made("cpe", seeds=(0,), accuracy=0.9), made("rope", accuracy=0.95, quick=True)])
    assert [(e.encoding, found.rank(e)) for e in found.entries] == [
        ("rope", 1),
        ("none", 2),
        ("cpe", None),
        ("rope", None),
    ]
    assert found.missing_seeds == {"cpe": [1, 2]}


def test_recommendations_name_the_entries_that_are_ahead_without_a_rank():
    ranked = [made("none", accuracy=0.6), made("rope", accuracy=0.7)]
    assert Board(PROTOCOL, ranked).compared_text() == ""
    ahead, behind = made("cpe", seeds=(0,), accuracy=0.9), made("cpb", seeds=(0,), accuracy=0.65)
    text = Board(PROTOCOL, [*ranked, behind, ahead]).compared_text("`")
    assert text.startswith("Only the 2 encodings with a rank are compared here.") and text.endswith("so far: `cpe`.")
    assert Board(PROTOCOL, [*ranked, behind]).compared_text() == "Only the 2 encodings with a rank are compared here."


def test_chosen_seeds_do_not_count_before_those_of_the_protocol():
    lucky = made("cpe", seeds=(0, 17, 23, 99), accuracy=0.9)
    found = Board(PROTOCOL, [made("none", accuracy=0.6), made("rope", accuracy=0.7), lucky])
    assert found.rank(lucky) is None and "it has 1 of the seeds 0, 1, 2" in found.reason_without_rank(lucky)
    more = made("cpe", seeds=(0, 1, 2, 17), accuracy=0.9)
    assert Board(PROTOCOL, [made("none", accuracy=0.6), made("rope", seeds=(0, 1, 2, 17)), more]).rank(more) == 1


def test_entries_on_different_data_are_not_compared(tmp_path):
    gpu = Protocol.load("vitpos-1-gpu")
    numbers = {key: {0: 0.5 if column.unit == "fraction" else 1} for key, column in gpu.columns.items()}
    for name, classes in (("rope", 100), ("none", 1000)):
        entry = replace(made(name), protocol=gpu.name, protocol_sha256=gpu.sha256, numbers=numbers)
        with pytest.raises(InputError, match="on which data"):
            load_entry(entry.save(tmp_path))
        replace(entry, data=f"{classes} classes").save(tmp_path)
    with pytest.raises(InputError, match="give entries of one data set"):
        Board.load([tmp_path], gpu)


def test_an_encoding_whose_sources_leave_it_open_has_no_rank():
    found = Board(PROTOCOL, [made("none", accuracy=0.6), made("rope", accuracy=0.7), made("fire", accuracy=0.8)])
    (fire,) = [entry for entry in found.entries if entry.encoding == "fire"]
    assert found.rank(fire) is None and "sequences" in found.reason_without_rank(fire)
    assert found.number(fire, "accuracy").mean > 0.79


def test_entries_without_rank_are_compared_over_the_seeds_that_both_have():
    found = Board(PROTOCOL, [made("none", seeds=(0,), accuracy=0.6), made("rope", seeds=(0,), accuracy=0.7)])
    (gap, half) = found.differences(found.entries[1])["rope"]
    assert gap == pytest.approx(-0.1, abs=0.02) and half == float("inf")


def test_counts_of_zero_have_no_sign_and_joined_entries_count_for_each_processor():
    parameters = PROTOCOL.columns["parameters"]
    assert format_measure(-1e-13, parameters) == "0" and format_measure(4096.0, parameters) == "4,096"
    both = replace(made("rope"), machine={"instructions": "AVX2, AVX512"})
    assert Board(PROTOCOL, [both, replace(made("none"), machine={"instructions": "AVX2"})]).instructions == {
        "AVX2": 2,
        "AVX512": 1,
    }


def test_one_seed_of_all_is_no_ranking():
    found = board(seeds=(0,))
    assert not found.rankings and not found.recommendations and all(found.rank(e) is None for e in found.entries)
    assert found.entries[0].encoding == "rope", "the order is that of the numbers"


def test_differences_are_those_from_the_baselines_and_the_best():
    found = board()
    last = found.entries[-1]
    gaps = found.differences(last)
    assert set(gaps) == {"learned", "rope"} and gaps["rope"][0] < gaps["learned"][0] < 0 < gaps["rope"][1]


def test_the_recommendation_is_the_fastest_of_those_that_cannot_be_told_apart():
    entries = [
        made("liere", accuracy=0.7001, time=2.0),
        made("alibi", accuracy=0.70, time=1.0),
        made("none", accuracy=0.5),
    ]
    first = Board(PROTOCOL, entries).recommendations[0]
    assert (
        first.column == "accuracy"
        and set(first.best) == {"liere", "alibi"}
        and first.fastest == ("alibi",)
        and first.any_significant
    )
    assert {r.column for r in Board(PROTOCOL, entries).recommendations}.isdisjoint({"pixels", "order"})
    same = [made(name, accuracy=0.7, noise=0.05) for name in ("rope", "cpe", "none")]
    assert not Board(PROTOCOL, same).recommendations[0].any_significant


def test_a_board_is_read_from_files_and_folders(tmp_path):
    for name, value in SPREAD.items():
        made(name, accuracy=value).save(tmp_path)
    assert len(Board.load([tmp_path], PROTOCOL).rows()) == 4
    made("rope", seeds=(3, 4)).save(tmp_path)
    assert max(len(entry.seeds) for entry in Board.load([tmp_path], PROTOCOL).entries) == 5
    with pytest.raises(InputError, match="two entries of 'none' have seed 0"):
        Board.load([tmp_path, tmp_path / "none.json"], PROTOCOL)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="has no entry"):
        Board.load([tmp_path / "empty"], PROTOCOL)
    with pytest.raises(InputError, match="does not exist"):
        Board.load([tmp_path / "nothing"], PROTOCOL)

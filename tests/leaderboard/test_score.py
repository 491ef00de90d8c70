"""Scoring an encoding: what is run, what its entry contains, and that it repeats."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from tests.leaderboard.entries import PROTOCOL
from tests.processes import vitpos
from vitpos import PositionEncoding
from vitpos.cli.leaderboard_tables import show_repeat
from vitpos.errors import InputError
from vitpos.leaderboard.entry import join_seeds
from vitpos.leaderboard.entry_checks import TOLERANCE
from vitpos.leaderboard.protocol import Measure, Protocol, family_of, protocols
from vitpos.leaderboard.score import score
from vitpos.leaderboard.training_check import training_losses

TINY = replace(
    PROTOCOL,
    experiment={
        "data": "mnist(limit=256, test_limit=64)",
        "model": "vit(patch=7, dim=16, depth=2, heads=2, pool='mean')",
        "evaluations": ["accuracy", "closed_form(images=1)", "cost(batch_size=2, steps=1)"],
        "train": {"epochs": 1},
    },
    columns={
        "accuracy": Measure("accuracy, %", "accuracy", better="higher"),
        "pixels": Measure("patches, %", "closed_form(images=1)", "patches_exact", optional=True),
        "parameters": Measure("parameters", "cost(batch_size=2, steps=1)", "position_parameters", unit="count"),
    },
)


NEAR = (
    "from vitpos import PositionEncoding\n\n\nclass Near(PositionEncoding):\n"
    '    """Subtracts the distance from the logits."""\n\n'
    '    traits = ("translation_invariant",)\n\n'
    "    def __init__(self, geometry):\n        super().__init__()\n\n"
    "    def bias(self, q, k, pos, layer):\n        return -pos.offsets().norm(dim=-1)[:, None].to(q.dtype)\n"
)


class Slopes(PositionEncoding):
    """Adds a learned slope times the distance to the logits."""

    traits = ("translation_invariant", "learnable")

    def __init__(self, geometry):
        super().__init__()
        self.slope = nn.Parameter(torch.zeros(geometry.heads))

    def bias(self, q, k, pos, layer):
        return pos.offsets().norm(dim=-1)[:, None] * self.slope[:, None, None]


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    return score("learned", tmp_path_factory.mktemp("learned"), protocol=TINY, seeds=[0, 1], workers=1)


def test_an_entry_has_the_numbers_of_every_seed(learned):
    assert learned.seeds == [0, 1] and learned.family == "added" and set(learned.code) == {"learned"}
    assert set(learned.numbers) == set(TINY.columns) and learned.numbers["parameters"] == {0: 256, 1: 256}
    assert all(0 <= value <= 1 for value in learned.numbers["accuracy"].values())
    logits, vectors = learned.maps.values()
    assert len(logits) == 2 and len(logits[0]) == len(logits[0][0]) == 4, "a map of the 4×4 grid for each of two blocks"
    assert vectors[0][2][2] == pytest.approx(1), "a vector is similar to itself"


def test_the_same_seeds_give_identical_numbers(learned, tmp_path):
    again = score("learned", tmp_path, protocol=TINY, seeds=[0, 1], workers=1)
    assert again.numbers == learned.numbers and again.maps == learned.maps


def test_a_column_that_does_not_apply_has_a_reason(tmp_path):
    entry = score("rope", tmp_path, protocol=TINY, seeds=[0], workers=1)
    assert entry.family == "rotary" and "pixels" not in entry.numbers and entry.reasons["pixels"]


def test_maps_are_finite_where_heads_mask_pairs(tmp_path):
    entry = score("lookhere", tmp_path, protocol=TINY, seeds=[0], workers=1)
    (logits,) = entry.maps.values()
    assert max(abs(value) for block in logits for row in block for value in row) < 1e3


def test_only_a_protocol_without_data_takes_data(tmp_path):
    with pytest.raises(InputError, match="has fixed data"):
        score("rope", tmp_path, protocol=TINY, data="mnist")
    gpu = Protocol.load("vitpos-1-gpu")
    (data,) = {cell.data for cell in gpu.experiment_for("rope", "rotary", data="mnist").cells}
    assert data == "mnist"


def test_a_class_from_outside_the_package_can_be_scored(tmp_path):
    entry = score(Slopes, tmp_path, protocol=TINY, seeds=[0], workers=1)
    assert entry.encoding.endswith(":Slopes") and entry.family == "bias" and entry.numbers["parameters"] == {0: 2}


class Leaks(Slopes):
    """Adds the mean of all queries in a batch to the logits."""

    def bias(self, q, k, pos, layer):
        return super().bias(q, k, pos, layer) + q.mean()


def test_an_encoding_that_breaks_the_contract_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"Leaks' fails \d+ checks of the contract.*python -m vitpos.testing"):
        score(Leaks, tmp_path, protocol=TINY, seeds=[0], workers=1)
    assert not list(tmp_path.iterdir())


def test_a_folder_keeps_the_run_of_one_encoding(learned, tmp_path):
    score("learned", tmp_path, protocol=TINY, seeds=[0], workers=1)
    before = (tmp_path / "results.csv").read_bytes()
    with pytest.raises(InputError, match="has a run of learned; use another folder"):
        score("rope", tmp_path, protocol=TINY, seeds=[0], workers=1)
    with pytest.raises(InputError, match="another length of training"):
        longer = replace(TINY, experiment=TINY.experiment | {"train": {"epochs": 2}})
        score("learned", tmp_path, protocol=longer, seeds=[0], workers=1)
    assert (tmp_path / "results.csv").read_bytes() == before


def test_seeds_that_are_trained_later_join_an_entry(learned, tmp_path):
    first, later = (score("relative", tmp_path / str(s), protocol=TINY, seeds=[s], workers=1) for s in (0, 3))
    assert join_seeds(first, later).seeds == [0, 3]


def test_an_entry_names_no_folder(tmp_path):
    (tmp_path / "mine.py").write_text(NEAR)
    entry = score(f"{tmp_path}/mine.py:Near", tmp_path / "run", protocol=TINY, seeds=[0], workers=1)
    assert entry.encoding == "mine.py:Near" and set(entry.code) == {"mine.py:Near"}
    assert "mine.py:Near" in entry.training_losses and str(tmp_path) not in repr(entry)


@pytest.mark.parametrize(
    ("hooks", "traits", "family"),
    [
        ({"vectors"}, (), "added"),
        ({"update"}, (), "added"),
        ({"vectors", "bias"}, (), "bias"),
        ({"added_values"}, (), "bias"),
        ({"bias", "rotate"}, (), "rotary"),
        ({"bias"}, ("context_dependent",), "context"),
    ],
)
def test_the_family_follows_from_what_an_encoding_does(hooks, traits, family):
    assert family_of(frozenset(hooks), traits) == family


@pytest.mark.parametrize("name", protocols())
def test_every_protocol_describes_an_experiment(name):
    protocol = Protocol.load(name)
    experiment = protocol.experiment_for("rope", "rotary")
    assert {cell.seed for cell in experiment.cells} == set(protocol.seeds)
    evaluations = {spec for cell in experiment.cells for spec in cell.evaluations}
    assert {column.evaluation for column in protocol.columns.values()} <= evaluations
    assert {column.data for column in protocol.columns.values()} - {""} <= {cell.data for cell in experiment.cells}
    assert all(cell.train.lr == protocol.learning_rates["rotary"] for cell in experiment.cells)
    shortened = protocol.experiment_for("rope", "rotary", quick=True)
    assert {cell.train.epochs for cell in shortened.cells} == {1} and {cell.seed for cell in shortened.cells} == {0}


def test_a_shortened_run_takes_a_subset_of_the_users_data():
    cells = Protocol.load("vitpos-1-gpu").experiment_for("rope", "rotary", quick=True, data="cifar10").cells
    assert {cell.data for cell in cells} == {"cifar10 + subset(limit=64, test_limit=32)"}


@pytest.mark.slow
def test_an_entry_of_a_plug_in_goes_through_all_commands(tmp_path):
    (tmp_path / "mine.py").write_text(NEAR)
    options = ("--protocol", "vitpos-1-tasks")
    done = vitpos("score", "mine.py:Near", "--quick", *options, "--out", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (entry,) = (tmp_path / "run" / "entry").glob("*.json")
    done = vitpos("leaderboard", entry, *options, "--out", "board.html", cwd=tmp_path)
    assert done.returncode == 0 and "mine.py:Near" in done.stdout, done.stderr
    assert "mine.py:Near" in (tmp_path / "board.html").read_text() and (tmp_path / "board.csv").is_file()
    entry.write_text(entry.read_text().replace('"quick": true', '"quick": false'))
    done = vitpos("leaderboard", entry, *options, cwd=tmp_path)
    assert done.returncode == 2 and "digest" in done.stderr and done.stderr.count("\n") == 1


def test_the_differences_from_a_published_entry_are_printed(learned, capsys):
    seen = learned.numbers["accuracy"]
    other = replace(learned, numbers=learned.numbers | {"accuracy": {0: seen[0], 1: seen[1] - 0.0125}})
    show_repeat(learned, other, TINY)
    first, second = capsys.readouterr().out.replace("\n", " ").split("Seed ")[1:]
    assert first.startswith("0 is published too") and "all numbers are identical" in first
    assert second.startswith("1 is published too") and "accuracy +1.25." in second


@pytest.mark.parametrize("name", [name for name in protocols() if Protocol.load(name).training_losses])
def test_the_package_trains_as_it_did_when_the_protocol_was_made(name):
    protocol = Protocol.load(name)
    assert training_losses(protocol) == pytest.approx(protocol.training_losses, abs=TOLERANCE / 10)


@pytest.mark.parametrize("change", [{"augment": "flip"}, {"label_smoothing": 0.01}])
def test_the_short_training_notices_another_recipe(change):
    def loss(**train):
        experiment = TINY.experiment | {"train": {"epochs": 1, **train}}
        return training_losses(replace(TINY, baselines=("learned",), experiment=experiment))["learned"]

    assert abs(loss() - loss(**change)) > 3 * TOLERANCE

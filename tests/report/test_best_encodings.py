"""Best encodings of a column given the noise of seeds, and the rows that share a figure."""

import pytest

from tests.report.runs import TEXT, TWO, of_two_sets, page_of, shown, stored
from vitpos.report.best_encodings import compare_encodings


def compared(folder):
    """The comparisons of its first table, by name of the group."""
    return {group.name: group for group in compare_encodings(folder.experiment.tables[0], shown(folder))}


@pytest.mark.parametrize(
    ("learned", "untested"),
    [({0: 0.9}, ("none",)), ({0: 0.9, 1: 0.91, 2: 0.92}, ())],
    ids=["one seed finished", "three seeds finished"],
)
def test_one_seed_beside_several_shows_no_difference(tmp_path, learned, untested):
    values = {"none": {0: 0.5, 1: 0.51, 2: 0.52}, "learned": learned}

    def score(cell):
        found = values[cell.encoding].get(cell.seed)
        return None if found is None else {"accuracy": {"accuracy": found}}

    folder = stored(tmp_path / "out", score)
    group = compared(folder)[""]
    assert (group.columns[0].best, group.columns[0].untested) == ("learned", untested)
    assert group.single_seed == (["learned"] if untested else [])
    assert (group.num_tested, group.leaders) == ((0, ()) if untested else (1, ("learned",))), "one seed is no merit"
    assert ("too few common seeds to compare it with none" in page_of(folder)) is bool(untested)


@pytest.mark.parametrize(("learned", "tied"), [(0.9, ()), (0.5, ("learned",))])
def test_where_every_encoding_has_one_seed_only_equal_values_are_tied(tmp_path, learned, tied):
    values = {"none": 0.5, "learned": learned}
    text = TEXT.replace("[0, 1, 2]", "[0]")
    folder = stored(tmp_path / "out", lambda cell: {"accuracy": {"accuracy": values[cell.encoding]}}, text)
    group = compared(folder)[""]
    assert group.columns[0].tied == tied and group.columns[0].equal is bool(tied)
    assert group.single_seed == ["none", "learned"] and not group.has_seeds
    assert "One seed cannot separate" in page_of(folder)


THREE = TEXT.replace('"learned"]', '"learned", "sinusoidal"]').replace(
    "columns = [",
    'columns = [{ label = "error", evaluation = "token_diversity", metric = "blank_fraction", better = "lower" }, ',
)
NOISE = (0.0, 0.03, 0.01)  # by seed


@pytest.mark.parametrize(
    ("offsets", "best", "counts", "leaders"),
    [
        (
            {"none": 0.0, "learned": 0.001, "sinusoidal": 0.002},
            [("none", ("learned", "sinusoidal")), ("sinusoidal", ("none", "learned"))],
            (2, 0),
            (),
        ),
        (
            {"none": 0.0, "learned": 0.3, "sinusoidal": 0.302},
            [("none", ()), ("sinusoidal", ("learned",))],
            (2, 2),
            ("none", "sinusoidal", "learned"),
        ),
    ],
    ids=["no encoding differs", "two differ from the third"],
)
def test_a_comparison_reports_that_no_difference_was_found(tmp_path, offsets, best, counts, leaders):
    def score(cell):
        value = 0.5 + offsets[cell.encoding] + NOISE[cell.seed - list(offsets).index(cell.encoding)]
        return {"accuracy": {"accuracy": value}, "token_diversity": {"blank_fraction": value}}

    text = THREE.replace("train.epochs = 1", 'train.epochs = 1\nevaluations = ["accuracy", "token_diversity"]')
    folder = stored(tmp_path / "out", score, text)
    group = compared(folder)[""]
    assert [(one.best, one.tied) for one in group.columns] == best
    assert (group.num_tested, group.num_different) == counts and group.leaders == leaders
    assert "no difference found" in page_of(folder)


def test_a_comparison_is_about_one_set_of_data(tmp_path):
    folder = stored(tmp_path / "out", of_two_sets, TWO)
    found = {name: group.columns[0].best for name, group in compared(folder).items()}
    assert found == {"trained on stripes(count=40)": "learned", "trained on stripes(count=60)": "none"}
    assert page_of(folder).count("<h4>trained on stripes") == 2

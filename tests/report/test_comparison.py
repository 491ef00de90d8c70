"""Best encodings of a column given the noise of seeds, and the rows that share a figure."""

import pytest

from tests.report.runs import TEXT, TWO, of_two_sets, page_of, shown, stored
from vitpos.lab.summary import grouped
from vitpos.report.comparison import compare_encodings, figure_groups, line_groups, row_colors


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


def test_groups_differ_in_everything_but_the_encoding(tmp_path):
    text = TWO.replace("train.epochs = 1", "train.lr = [0.1, 0.2]")
    folder = stored(tmp_path / "out", of_two_sets, text)
    groups = grouped(shown(folder))
    assert list(groups)[:2] == ["trained on stripes(count=40), lr 0.1", "trained on stripes(count=40), lr 0.2"]
    assert len(groups) == 4 and all(len(rows) == 2 for rows in groups.values())


MODELS = TWO.replace('"vit(patch=(2, 4), dim=8, depth=1, heads=2)"', '["minimal(patch=2, dim=8)", "minimal(patch=4)"]')


def test_rows_share_a_map_with_other_encodings_or_else_with_the_same_data(tmp_path):
    found = figure_groups(shown(stored(tmp_path / "several", of_two_sets, MODELS)))
    assert len(found) == 4 and all(list(rows) == ["none", "learned"] for rows in found.values())
    text = MODELS.replace('["none", "learned"]', '"none"')
    found = figure_groups(shown(stored(tmp_path / "single", of_two_sets, text)))
    assert list(found) == ["trained on stripes(count=40)", "trained on stripes(count=60)"]
    names = ["minimal(patch=2, dim=8) · none", "minimal(patch=4) · none"]
    assert all(list(rows) == names for rows in found.values())


def test_a_few_lines_of_the_same_data_share_a_figure(tmp_path):
    folder = stored(tmp_path / "out", of_two_sets, MODELS)
    found = line_groups(shown(folder))
    assert list(found) == ["trained on stripes(count=40)", "trained on stripes(count=60)"]
    assert all(len(rows) == 4 and set(rows) < set(row_colors(folder)) for rows in found.values())

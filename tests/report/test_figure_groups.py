"""Which rows share a figure."""

from tests.report.runs import TWO, of_two_sets, shown, stored
from vitpos.lab.summary import grouped
from vitpos.report.figure_groups import figure_groups, line_groups, row_colors


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

"""Curves of known numbers: axes, points, groups and colors."""

import numpy as np
import pytest

from tests.report.runs import SERIES, SWEPT, TEXT, TWO, of_two_sets, page_of, stored
from vitpos.evaluations.result import Result
from vitpos.report.curves import curves
from vitpos.report.figure_groups import row_colors
from vitpos.report.figures import figures


def drawn(folder):
    """The axes of each curve's figures, by title."""
    return {title: [figure.axes[0] for row in rows for figure in row] for title, _, rows in curves(folder)}


@pytest.mark.parametrize(
    ("title", "label", "scale", "points"),
    [
        ("Accuracy by mask_ratio (shuffle)", "mask_ratio", "linear", [(0.15, 75), (0.5, 40), (1, -10)]),
        ("Consistency by mask_ratio (shuffle)", "mask_ratio", "linear", [(0.15, 85), (0.5, 50), (1, 0)]),
        ("Accuracy by size (resolution_curve)", "size, relative to training", "log", [(0.5, 50), (0.75, 50), (1, 50)]),
        ("Accuracy by shift in pixels (translation_curve)", "shift in pixels", "linear", [(1, 50), (2, 50), (3, 50)]),
        (
            "Consistency by shift in pixels (translation_curve)",
            "shift in pixels",
            "linear",
            [(1, 50), (2, 50), (3, 50)],
        ),
        ("Error by severity (corruption)", "severity", "linear", [(1, 50), (3, 50), (5, 50)]),
        ("Token error by layer (translation)", "layer", "linear", [(1, 0.1), (2, 0.2), (3, 0.3)]),
    ],
)
def test_a_curve_is_drawn_against_what_its_numbers_are(tmp_path, title, label, scale, points):
    found = drawn(stored(tmp_path / "out", lambda cell: SWEPT | SERIES))
    axes = found[title][0]
    assert (axes.get_xlabel(), axes.get_xscale()) == (label, scale)
    assert np.allclose(axes.lines[0].get_xydata()[:3], points) and len(found) == 7


def test_variants_of_an_evaluation_are_named_by_the_options_that_differ(tmp_path):
    moved = {"translation_curve(border='wrap')": Result(curves={"accuracy": dict.fromkeys((1.0, 2.0, 3.0, 4.0), 0.4)})}
    cut = {spec.replace(")", ", grid=(2, 2))"): numbers for spec, numbers in SWEPT.items()}
    found = drawn(stored(tmp_path / "out", lambda cell: SERIES | moved | SWEPT | cut))
    one, other = found["Accuracy by shift in pixels (translation_curve)"]
    assert (one.get_title(), other.get_title()) == (
        "border='zeros'",
        "border='wrap'",
    ) and one.get_ylim() == other.get_ylim()
    assert [axes.get_title() for axes in found["Accuracy by mask_ratio (shuffle)"]] == [
        "default options",
        "grid=(2, 2)",
    ]


def test_curves_of_two_sets_of_data_are_two_figures(tmp_path):
    folder = stored(tmp_path / "out", lambda cell: of_two_sets(cell) | SWEPT, TWO)
    axes = drawn(folder)["Accuracy by mask_ratio (shuffle)"]
    assert [one.get_title() for one in axes] == ["trained on stripes(count=40)", "trained on stripes(count=60)"]
    assert [[text.get_text() for text in one.texts] for one in axes] == [["none", "learned"]] * 2
    assert page_of(folder).count('alt="Training curves"') == 4


def test_of_many_lines_the_best_have_colors_and_all_have_names(tmp_path):
    names = ["none", *(f"learned(std={number}.0)" for number in range(9))]
    text = TEXT.replace('["none", "learned"]', str(names)).replace("[0, 1, 2]", "[0]")

    def score(cell):
        return {"accuracy": {"accuracy": names.index(cell.encoding) / 20}} | SWEPT

    folder = stored(tmp_path / "out", score, text)
    shade = row_colors(folder)
    assert list(shade) == [*names[:3:-1], "none"] and len(set(shade.values())) == 7
    notes = {title: note for title, note, _ in figures(folder)}
    assert all(
        "In color: none, dashed" in notes[title] for title in ("Accuracy by mask_ratio (shuffle)", "Training curves")
    )
    (axes, *_) = drawn(folder)["Accuracy by mask_ratio (shuffle)"]
    heights = [text.get_position()[1] for text in axes.texts]
    assert sorted(text.get_text() for text in axes.texts) == sorted(names)
    assert min(np.diff(sorted(heights))) > 0.05


def test_unfinished_cells_change_no_name_and_no_color(tmp_path):
    def score(cell):
        return of_two_sets(cell) | SWEPT if cell.data == "stripes(count=40)" and cell.encoding == "learned" else None

    (axes,) = drawn(stored(tmp_path / "some", score, TWO))["Accuracy by mask_ratio (shuffle)"]
    whole = drawn(stored(tmp_path / "all", lambda cell: of_two_sets(cell) | SWEPT, TWO))[
        "Accuracy by mask_ratio (shuffle)"
    ]
    assert axes.get_title() == "trained on stripes(count=40)" == whole[0].get_title()
    assert axes.lines[0].get_color() == whole[0].lines[1].get_color()

"""Summary tables and pages of inspections."""

import json
import math

import pytest
import torch

from tests.inspection.tables import noise, plane
from vitpos.inspection.inspect import Inspection, Target, inspect
from vitpos.inspection.offsets import bias_numbers
from vitpos.report.inspection_page import folder_name, json_numbers, write_all_numbers, write_inspection, write_page
from vitpos.report.inspection_table import MISSING, comparison_table, summary_rows

GRID = (4, 7)


def inspected(name, **tensors):
    target = Target(name, {"grid": list(GRID), "grid_source": "the test"}, **tensors)
    return Inspection(target, inspect(target))


@pytest.fixture(scope="module")
def inspections():
    biases = {"layer 1": torch.randn(2, 7, 13, generator=torch.Generator().manual_seed(0))}
    return [inspected("plane", table=plane(GRID, 8, 0.1)), inspected("noise", table=noise(GRID, 8), biases=biases)]


def rows_of(inspections):
    return {heading: texts for heading, _, texts in comparison_table(inspections)}


def test_rows_are_shared_and_missing_numbers_are_dashes(inspections):
    rows = rows_of(inspections)
    assert rows["grid"] == ["4×7 (the test)"] * 2
    std = [heading for heading in rows if heading.startswith("std of biases")]
    number = sum(bias_numbers(inspections[1].target.biases["layer 1"])["std"]) / 2
    assert [rows[heading] for heading in std] == [[MISSING, f"{number:.3f}" if number < 1 else f"{number:.3g}"]]


def test_verdicts_are_shown_with_effect_and_p(inspections):
    rows = rows_of(inspections)
    finding = inspections[0].numbers["table"]["structure"]["neighbors"]
    assert rows[finding["statement"]][0] == f"yes (effect {finding['effect']:.3g}, p {finding['p']:.2g})"
    assert rows[finding["statement"]][1].startswith("not significant")


def test_tables_on_the_same_grid_are_compared_with_the_first(inspections):
    (row,) = (texts for heading, texts in rows_of(inspections).items() if "CKA" in heading)
    assert row[0] == MISSING and 0 < float(row[1]) < 1


def test_every_note_belongs_to_a_row_and_every_heading_is_unique(inspections):
    for inspection in inspections:
        headings = [row.heading for row in summary_rows(inspection.numbers)]
        assert len(headings) == len(set(headings)) and all(headings)


def test_files_hold_the_numbers_and_one_image_per_figure(inspections, tmp_path):
    drawn = [(one, write_inspection(tmp_path / folder_name(n, one), one)) for n, one in enumerate(inspections)]
    assert {path.parent.name for path in tmp_path.rglob("inspect.json")} == {"01-plane", "02-noise"}
    for folder, (inspection, images) in zip(("01-plane", "02-noise"), drawn, strict=True):
        stored = json.loads((tmp_path / folder / "inspect.json").read_text())
        assert stored == json.loads(json.dumps(json_numbers(inspection.numbers)))
        assert {path.stem for path in (tmp_path / folder).glob("*.png")} == set(inspection.figures) == set(images)
    write_all_numbers(tmp_path / "compare.json", inspections)
    assert len(json.loads((tmp_path / "compare.json").read_text())) == 2
    page = write_page(tmp_path / "compare.html", drawn).read_text()
    assert page.count("data:image/png") == sum(len(images) for _, images in drawn)
    assert "http" not in page, "nothing is loaded from elsewhere"


def test_numbers_that_json_lacks_become_null():
    assert json_numbers({"a": [1.0, math.nan, (math.inf, 2)], 3: "x"}) == {"a": [1.0, None, [None, 2]], "3": "x"}

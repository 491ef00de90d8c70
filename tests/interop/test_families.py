"""The table of families in the documentation is that of the stored measurement, and the measurement gives these numbers."""

import csv

import pytest
from benchmarks import families

EXACT = 1e-12  # differences that are rounding in float64


def stored():
    with families.CSV.open() as file:
        return list(csv.DictReader(file))


def test_the_page_shows_the_stored_table():
    page = families.PAGE.read_text()
    assert families.table(stored()) in page
    assert families.replace_table(page, stored()) == page


def test_every_cell_is_a_small_difference_or_a_reason():
    assert [(row["library"], row["family"]) for row in stored()] == [(a, b) for a, b, _ in families.FAMILIES]
    for row in stored():
        for column in ("attach", "load", "resize", "export"):
            text = row[column]
            limit = {"resize": 1e-8, "export": 1e-4}.get(column, EXACT)
            assert text.startswith("no: ") or float(text) < limit, (row["family"], column)


@pytest.mark.parametrize("family", ["ViT", "RoPE-ViT, mixed", "TransformerEncoder"])
def test_a_row_is_measured_again(family):
    before = {(row["library"], row["family"]): row for row in stored()}
    for row in families.measure([family]):
        kept = before[row["library"], row["family"]]
        for column in ("attach", "load"):
            assert kept[column].startswith("no: ") == row[column].startswith("no: ")
            assert row[column].startswith("no: ") or float(row[column]) < EXACT


@pytest.mark.slow
def test_all_rows_are_measured_again():
    for row, kept in zip(families.measure([]), stored(), strict=True):
        for column in ("attach", "load", "resize"):
            if kept[column].startswith("no: "):
                assert row[column] == kept[column]
            else:
                assert float(row[column]) < max(EXACT, 3 * float(kept[column]))

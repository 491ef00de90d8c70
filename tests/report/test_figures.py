"""The other figures of a page, made of stored files alone."""

import math

import numpy as np
import pytest

from tests.report.runs import CONFUSION, LOG, TWO, of_two_sets, page_of, stored
from vitpos.data.dataset import load
from vitpos.lab import runner
from vitpos.lab.cell_models import load_model
from vitpos.lab.results import Results
from vitpos.report.figures import figures


def shades(figure):
    """The level of each cell of a heat map, rows by columns."""
    return figure.axes[0].images[0].get_array().filled(np.nan)


def test_a_heatmap_compares_the_encodings_of_one_data_set(tmp_path):
    folder = stored(tmp_path / "out", of_two_sets, TWO)
    maps = {title: figure for title, _, figure in figures(folder) if title.startswith("At a glance")}
    assert list(maps) == [f"At a glance: Compared · trained on stripes(count={count})" for count in (40, 60)]
    assert [shades(figure).tolist() for figure in maps.values()] == [[[0], [1]], [[1], [0]]]


def test_position_similarities_are_one_section_without_what_is_not_finite(tmp_path):
    text = TWO.replace('"learned"', '"learned", "sinusoidal", "learned(std=1.0)"')
    folder = stored(tmp_path / "out", lambda cell: {"accuracy": {"accuracy": 0.5}}, text)
    for cell, run in folder.trained:
        if cell.encoding == "learned(std=1.0)":  # a training that went astray
            model = load_model(run)
            model.encoding.table.data.fill_(math.nan)
            (run.path / "position_table.safetensors").unlink()
            runner.finish(run, model, load(cell.data), LOG)
    (rows,) = (rows for title, _, rows in figures(folder) if title == "Position similarity")
    assert [[figure.axes[0].get_title() for figure in row] for row in rows] == [
        [f"trained on stripes(count={count})\n{name}" for name in ("learned", "sinusoidal")] for count in (40, 60)
    ]


def test_a_page_is_made_of_stored_files_alone(tmp_path, monkeypatch):
    folder = stored(tmp_path / "out", lambda cell: of_two_sets(cell) | {"confusion": CONFUSION})
    monkeypatch.setattr("vitpos.data.DATASETS.build", lambda *about: pytest.fail("data were loaded"))
    monkeypatch.setattr("vitpos.models.MODELS.build", lambda *about: pytest.fail("a model was built"))
    load.cache_clear()
    titles = [title for title, _, _ in figures(Results.open(folder.path))]
    assert {"Test images", "Position similarity", "Confusion matrices, stripes(count=40)"} <= set(titles)
    assert "Figure not available" not in titles and page_of(folder).count('alt="Position similarity"') == 1


def test_a_damaged_file_leaves_out_its_figure_alone(tmp_path):
    folder = stored(tmp_path / "out", of_two_sets)
    for path in folder.path.rglob("position_table.safetensors"):
        path.write_bytes(b"damaged")
    titles = [title for title, _, _ in figures(folder)]
    assert titles.count("Figure not available") == 1 and "Training curves" in titles

"""The section of a position table: numbers and figure descriptions."""

import pytest
import torch

from tests.inspection.tables import noise, plane
from vitpos.inspection.table import baseline_tables, inspect_table

GRID = (4, 7)
TABLE = plane(GRID, 24, 0.05)


@pytest.fixture(scope="module")
def section():
    return inspect_table(TABLE)


def test_a_noisy_plane_is_recognized_as_a_grid(section):
    numbers = section.numbers
    assert numbers["projection"]["pca"]["residual"] < 0.01
    assert numbers["spectrum"]["table"]["centered"]["explained_2"] > 0.98
    errors = {name: one["methods"]["ridge"]["grid_mae"] for name, one in numbers["regression"].items()}
    assert errors["table"] < 0.1 < 1 < errors["noise"]
    assert numbers["structure"]["neighbors"]["verdict"] == numbers["structure"]["two_dimensional"]["verdict"] == "yes"


def test_norms_are_those_of_the_vectors(section):
    norms = TABLE.norm(dim=2)
    assert torch.tensor(section.numbers["norm_by_position"]).allclose(norms.float())
    assert section.numbers["norm"]["max"] == pytest.approx(norms.max().item())


def test_figures_hold_the_arrays_that_they_show(section):
    figures = {figure.name: figure for figure in section.figures}
    assert list(figures) == ["norms", "spectrum-variance", "spectrum-cumulative", "similarity", "pca-3d", "pca-2d"]
    assert figures["norms"].data["rows"]["norm"].shape == (1, *GRID)
    assert figures["similarity"].data["maps"].shape == (28, 28)
    assert figures["pca-3d"].data["points"].shape == (*GRID, 3) and len(figures["pca-2d"].data["labels"]) == 3
    curves = figures["spectrum-variance"].data["series"]
    assert list(curves) == ["table", "white noise", "fixed sin-cos"]
    assert curves["table"][1][1] == section.numbers["spectrum"]["table"]["centered"]["explained_2"]


@pytest.mark.slow
def test_large_tables_have_no_similarity_figure():
    assert "similarity" not in {figure.name for figure in inspect_table(noise((41, 40), 4)).figures}


def test_sinusoidal_vectors_have_equal_norms():
    table = baseline_tables(noise(GRID, 16))["sin_cos"].float()
    finding = inspect_table(table).numbers["structure"]["norm"]
    assert finding["verdict"] is None and "same norm" in finding["reason"]


@pytest.mark.slow
def test_extra_adds_svm_mlp_and_umap():
    pytest.importorskip("umap")
    section = inspect_table(TABLE[:3, :4], extra=True)
    assert set(section.numbers["regression"]["table"]["methods"]) == {"ridge", "minimum_norm", "svm", "mlp"}
    assert 0 <= section.numbers["projection"]["umap"]["residual"] <= 1
    assert "umap-2d" in {figure.name for figure in section.figures}

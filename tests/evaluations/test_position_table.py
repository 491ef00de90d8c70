"""The numbers of an inspected position table as metrics."""

import math

import pytest
import torch

from tests.evaluate import evaluate, numbers_of
from tests.evaluations.models import digits
from tests.inspection.tables import plane
from tests.references import peer
from vitpos.inspection.table import inspect_table
from vitpos.models import MODELS

SHAPE, GRID = (1, 28, 28), (4, 7)
SPEC = "vit(patch=(7, 4), dim=12, depth=1, heads=2)"
FAMILY = ["table_structure", "table_spectrum", "table_projection", "table_regression", "table_prefix"]
FAST = {"table_structure": "table_structure(shuffles=50, tables=20)", "table_projection": "table_projection(tables=10)"}


def model_with(table, spec=SPEC, encoding="learned"):
    """A model whose position table is the given one, (R, C, D)."""
    torch.manual_seed(0)
    model = MODELS.build(spec, SHAPE, 10, encoding)
    with torch.no_grad():
        model.encoding.table[0] = table
    return model


TABLE = plane(GRID, 12, 0.5).float()


def test_structure_spectrum_projection_and_regression_are_those_of_the_inspection():
    model, data = model_with(TABLE), digits(2)
    inspected = inspect_table(TABLE).numbers
    numbers = numbers_of("table_structure", model, data)
    for name, finding in inspected["structure"].items():
        assert numbers[f"{name}_effect"] == pytest.approx(finding["effect"])
        assert numbers[f"{name}_p"] == pytest.approx(finding["p"])
    assert len(numbers) == 14 and numbers["neighbors_p"] < 0.01 < numbers["neighbors_effect"]
    spectrum = evaluate("table_spectrum", model, data)
    expected = inspected["spectrum"]["table"]["centered"]
    assert spectrum.numbers["effective_rank"] == pytest.approx(expected["effective_rank"])
    curve = spectrum.curves["explained_variance"]
    assert list(curve) == list(range(1, 11)) and curve[3] == pytest.approx(expected["explained_3"])
    projection = numbers_of("table_projection", model, data)
    assert projection["residual"] == pytest.approx(inspected["projection"]["pca"]["residual"])
    assert projection["trustworthiness"] == pytest.approx(inspected["projection"]["pca"]["trustworthiness"])
    assert max(projection["residual_p"], projection["trustworthiness_p"]) < 0.01
    for method in ("ridge", "minimum_norm"):
        found = numbers_of(f"table_regression(method='{method}')", model, data)
        assert found == pytest.approx(inspected["regression"]["table"]["methods"][method])


@pytest.mark.parametrize("method", ["svm", "mlp"])
def test_nonlinear_regressions_of_a_small_table_are_worse_than_ridge(method):
    peer("sklearn.svm")
    model, data = model_with(TABLE), digits(2)
    ridge, other = (
        numbers_of(f"table_regression(method='{one}', shuffles=1)", model, data)["grid_mae"]
        for one in ("ridge", method)
    )
    assert ridge < other


def test_a_table_of_noise_has_no_structure():
    torch.manual_seed(1)
    model = model_with(torch.randn(*GRID, 12))
    numbers = numbers_of("table_structure(shuffles=500, tables=200)", model, digits(2))
    p_values = [value for name, value in numbers.items() if name.endswith("_p")]
    assert min(p_values) > 0.01 and numbers_of("table_projection(tables=50)", model, digits(2))["residual_p"] > 0.01


def test_a_grid_without_a_center_has_undefined_statements():
    model = model_with(torch.randn(1, 7, 12), "vit(patch=(28, 4), dim=12, depth=1, heads=2)")
    numbers = numbers_of(FAST["table_structure"], model, digits(2))
    assert math.isnan(numbers["same_column_p"]) and math.isfinite(numbers["neighbors_p"])


@pytest.mark.parametrize("name", FAMILY)
@pytest.mark.parametrize(
    ("spec", "encoding", "reason"),
    [
        ("cnn", "none", "no patches"),
        (SPEC, "none", "adds no vectors"),
        (SPEC, "relative", "adds no vectors"),
        (SPEC, "cpe", "adds no vectors"),
        (SPEC, "learned(std=0.0)", "adds no vectors"),
    ],
)
def test_a_model_without_a_table_gets_a_reason(name, spec, encoding, reason):
    result = evaluate(name, MODELS.build(spec, SHAPE, 10, encoding), digits(2))
    assert not result.numbers and not result.curves and reason in result.reason


@pytest.mark.parametrize("name", FAMILY)
def test_equal_vectors_and_too_few_positions_get_a_reason(name):
    constant = evaluate(name, model_with(torch.ones(*GRID, 12)), digits(2))
    assert not constant.numbers and "all position vectors are equal" in constant.reason
    if name == "table_regression":
        few = model_with(torch.randn(1, 2, 12), "vit(patch=(28, 14), dim=12, depth=1, heads=2)")
        assert "too few" in evaluate(name, few, digits(2)).reason


@pytest.mark.parametrize("encoding", ["sinusoidal", "factorized", "learned + rope(base=10.0)", "learned + mjp"])
def test_any_encoding_that_adds_vectors_has_a_table(encoding):
    model = MODELS.build("vit(patch=(7, 4), dim=16, depth=1, heads=2)", SHAPE, 10, encoding)
    for name in FAMILY[:-1]:
        assert evaluate(FAST.get(name, name), model, digits(2)).numbers, name


def test_the_vector_of_cls_is_compared_with_those_of_patches():
    model = model_with(TABLE, encoding="learned(prefix_embed=True)")
    with torch.no_grad():
        model.encoding.prefix_table[0] = TABLE[2, 3] - TABLE.flatten(0, 1).mean(0)
    similar = numbers_of("table_prefix(samples=499)", model, digits(2))
    assert similar["similarity"] == pytest.approx(1) and similar["p"] == pytest.approx(1 / 500)
    assert "prefix_embed=True" in evaluate("table_prefix", model_with(TABLE), digits(2)).reason

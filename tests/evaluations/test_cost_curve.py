"""Cost as a function of the number of patches."""

import math
from dataclasses import replace

import pytest

from tests.evaluate import evaluate, numbers_of
from tests.evaluations.models import digits, small_vit
from vitpos.data.dataset import Split
from vitpos.errors import InputError
from vitpos.models import MODELS

SPEC = "vit(patch=4, dim=16, depth=2, heads=2, pool='mean', weight_init='xavier')"
GRIDS = ((2, 3), (4, 6), (8, 6))


def test_multiply_adds_are_those_of_models_built_for_each_grid_and_grow_with_the_slope_of_their_logarithms():
    model, data = small_vit("sinusoidal").float(), digits(4)
    result = evaluate(f"cost_curve(grids={GRIDS}, batch_size=2, steps=1)", model, data)
    # of a ViT without CLS, in order: patches, q k v and the output, attention, feed-forward, head
    expected = {
        float(n): n * 16 * 16 + 2 * (n * 4 * 16 * 16 + 2 * n * n * 16 + n * 8 * 16 * 16) + 16 * 10 for n in (6, 24, 48)
    }
    assert result.curves["macs"] == expected
    assert all(list(curve) == [6, 24, 48] for curve in result.curves.values()) and len(result.curves) == 5
    x, y = ([math.log(value) for value in values] for values in (expected, expected.values()))
    a, b = sum(x) / 3, sum(y) / 3
    slope = sum((u - a) * (v - b) for u, v in zip(x, y, strict=True)) / sum((u - a) ** 2 for u in x)
    assert result.numbers["macs_exponent"] == pytest.approx(slope) and 1 < slope < 2


@pytest.mark.parametrize(
    ("encoding", "tolerance"),
    [
        *((name, 1e-3) for name in ("learned", "relative", "decomposed", "factorized", "rope", "cpe")),
        ("sape2", 0.03),  # whose tables keep their size
    ],
)
def test_multiply_adds_and_memory_are_those_of_a_model_built_for_the_grid(encoding, tolerance):
    data = digits(4)
    result = evaluate("cost_curve(grids=((4, 6), (5, 7)), steps=1)", small_vit(encoding).float(), data)
    for rows, columns in ((4, 6), (5, 7)):
        images = data.train.images[:4, :, :, :1].expand(-1, -1, -1, 4 * columns)[:, :, : 4 * rows]
        split = Split(images.contiguous(), data.train.labels[:4])
        native = MODELS.build(SPEC, (1, 4 * rows, 4 * columns), 10, encoding)
        expected = numbers_of("cost(batch_size=4, steps=1)", native, replace(data, train=split, test=split))
        for metric in ("macs", "peak_memory_mb"):
            assert result.curves[metric][rows * columns] == pytest.approx(expected[metric], rel=tolerance), (
                metric,
                rows,
            )


def test_memory_of_a_bias_grows_faster_than_that_of_the_model_without():
    found = numbers_of("cost_curve(grids=((4, 4), (12, 12)), steps=1)", small_vit("sape2").float(), digits(4))
    assert found["memory_overhead_exponent"] > found["memory_exponent"] > 0.5


def test_the_model_stays_as_it_is():
    model, data = small_vit("learned").float(), digits(4)
    evaluate("cost_curve(grids=((2, 2), (3, 5)), steps=1)", model, data)
    assert model.geometry.grid == model.train_grid == (7, 7) and model.encoding.table.shape == (1, 7, 7, 16)


def test_one_size_is_an_error_and_a_model_without_patches_gets_a_reason():
    with pytest.raises(InputError, match="take two grids or more with different numbers of patches"):
        numbers_of("cost_curve(grids=((2, 6), (3, 4)))", small_vit("none").float(), digits(4))
    assert "no patches" in evaluate("cost_curve", MODELS.build("cnn", (1, 28, 28), 10), digits(2)).reason

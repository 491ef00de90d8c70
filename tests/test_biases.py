"""Effects of logits between places: known ones are found as they are, with what is not seen left out."""

import math

import pytest
import torch

from vitpos.errors import UserError
from vitpos.inspection.biases import bias_effects
from vitpos.inspection.table_stats import coordinates
from vitpos.inspection.table_structure import BEYOND

GRID = (7, 10)
COUNT = 70
PLACES = coordinates(GRID)
DOWN, ALONG = (PLACES[:, None] - PLACES).abs().unbind(2)
OTHERS = ~torch.eye(COUNT, dtype=torch.bool)


def of(*heads):
    """Effects of one layer, as plain numbers."""
    return {name: only for name, [only] in bias_effects(torch.stack(heads)[None], GRID).items()}


def test_a_bias_of_rows_columns_or_neighbours_is_found_as_large_as_it_is():
    found = of(3.0 * (DOWN == 0))
    assert found["same_row"] == pytest.approx(3) and found["same_row_beyond_distance"] > 2
    assert found["same_column"] == pytest.approx(-3 * 9 / 63) and found["same_column_beyond_distance"] < -0.3
    assert of(2.0 * (ALONG == 0))["same_column"] == pytest.approx(2)
    found = of(5.0 * (DOWN + ALONG == 1))
    assert found["nearby"] == pytest.approx(5) and found["grid"] == pytest.approx(5)


@pytest.mark.parametrize("slope", [1.0, -0.25])
def test_a_bias_of_distance_has_nothing_beyond_it(slope):
    far = torch.hypot(DOWN, ALONG)
    found = of(-slope * far)
    near = DOWN + ALONG == 1
    assert found["nearby"] == pytest.approx(slope * (far[OTHERS & ~near].mean() - 1).item())
    for name in BEYOND:
        assert abs(found[f"{name}_beyond_distance"]) < 0.02 * abs(slope) < 0.2 * abs(found[name]) + 0.02, name


def test_a_bias_of_nothing_and_a_bias_of_whole_rows_have_no_effects():
    assert set(of(torch.zeros(COUNT, COUNT)).values()) == {0.0}
    assert all(abs(x) < 1e-9 for x in of(torch.full((COUNT, COUNT), 4.0)).values())


def test_what_a_head_does_not_see_is_left_out():
    draw = torch.Generator().manual_seed(0)
    head = torch.randn(COUNT, COUNT, generator=draw, dtype=torch.float64)
    head[torch.rand(COUNT, COUNT, generator=draw) < 0.3] = -torch.inf
    seen = head.isfinite() & OTHERS
    found = of(head)
    assert found["same_row"] == pytest.approx((head[seen & (DOWN == 0)].mean() - head[seen & (DOWN > 0)].mean()).item())
    assert all(map(math.isfinite, found.values()))
    far = torch.hypot(DOWN, ALONG).masked_fill(~seen, -torch.inf)
    assert all(abs(of(far)[f"{name}_beyond_distance"]) < 0.03 for name in BEYOND)
    alone = torch.where(DOWN == 0, 1.0, -torch.inf).double()
    assert math.isnan(of(alone)["same_row"]) and of(alone)["nearby"] == 0
    assert of(alone, 3.0 * (DOWN == 0))["same_row"] == pytest.approx(3), "the mean over heads that have one"


def test_heads_are_averaged_and_layers_are_not():
    draw = torch.Generator().manual_seed(1)
    bias = torch.randn(3, 2, COUNT, COUNT, generator=draw)
    found = bias_effects(bias, GRID)
    each = [of(*layer) for layer in bias]
    alone = [[of(head) for head in layer] for layer in bias]
    for name, values in found.items():
        assert values == pytest.approx([layer[name] for layer in each])
        assert values == pytest.approx([sum(head[name] for head in layer) / 2 for layer in alone], abs=1e-7)


@pytest.mark.parametrize("grid", [(1, 1), (1, 6), (6, 1), (2, 2), (3, 3), (2, 5)])
def test_any_grid_has_the_effects_that_it_has_places_for(grid):
    count = grid[0] * grid[1]
    found = bias_effects(torch.rand(2, 1, count, count), grid)
    assert all(map(math.isfinite, (x for values in found.values() for x in values)))
    assert ("same_row" in found) == (min(grid) > 1) and ("rim" in found) == (grid == (3, 3))


def test_biases_of_another_grid_are_refused():
    with pytest.raises(UserError, match=r"\(2, 3, 6, 6\) are not \(layers, heads, 8, 8\) as a grid of 2×4 has"):
        bias_effects(torch.zeros(2, 3, 6, 6), (2, 4))

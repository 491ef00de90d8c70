"""Variance components of attention logits, and contrasts of mean logits, on models and biases with known answers."""

import math
from dataclasses import replace

import pytest
import torch

from tests.inspection.models import GRID, MODEL_SPECS, build, random_data, without_content
from vitpos.errors import InputError
from vitpos.inspection.logits import logit_contrasts, logit_variance
from vitpos.inspection.table_stats import grid_coordinates
from vitpos.inspection.table_structure import NULL_MODELS
from vitpos.positions import Positions

LARGE_GRID = (7, 10)
COUNT = 70
DOWN, ACROSS = (grid_coordinates(LARGE_GRID)[:, None] - grid_coordinates(LARGE_GRID)).abs().unbind(2)
OFF_DIAGONAL = ~torch.eye(COUNT, dtype=torch.bool)


@pytest.mark.parametrize("spec", MODEL_SPECS)
def test_without_positions_the_position_share_is_zero(spec):
    found = logit_variance(build(spec, qkv_scale=2.0), random_data(300), limit=None)
    assert found.images == 300 and found.position_share.abs().max() < 0.01
    assert (found.content > 0).all()


def test_logits_that_are_a_bias_alone_are_all_position():
    model = without_content(build(encoding="relative(std=1.0)"))
    found = logit_variance(model, random_data(12))
    torch.testing.assert_close(found.position_share, torch.ones(2, 2).double())
    with torch.inference_mode():
        table = torch.stack(
            [model.encoding.bias(torch.zeros(1, 2, 24, 8), None, Positions.from_grid(GRID), n)[0] for n in (0, 1)]
        )
    others = ~torch.eye(24, dtype=torch.bool)
    expected = table - (table * others).sum(-1, keepdim=True) / 23
    torch.testing.assert_close(found.mean, expected.double(), atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(found.position, expected.double().square()[..., others].mean(-1), atol=1e-6, rtol=1e-5)


def test_a_sum_of_position_and_content_is_separated():
    model, data = build("minimal(patch=(2, 3), dim=16)", "relative(std=1.0)", qkv_scale=2.0), random_data(400)
    content = logit_variance(build("minimal(patch=(2, 3), dim=16)", qkv_scale=2.0), data, limit=None)
    position = logit_variance(
        without_content(build("minimal(patch=(2, 3), dim=16)", "relative(std=1.0)")), data, limit=None
    )
    both = logit_variance(model, data, limit=None)
    assert both.content.item() == pytest.approx(content.content.item(), rel=0.01)
    assert both.position.item() == pytest.approx(position.position.item(), rel=0.05)


def test_the_position_component_is_unbiased_for_few_images():
    model = build(qkv_scale=2.0)
    few = torch.stack(
        [logit_variance(model, random_data(5, seed=seed), limit=None).position_share for seed in range(40)]
    )
    assert few.mean() == pytest.approx(0, abs=0.01), "a biased estimate would be near 1 / 5"
    with pytest.raises(InputError, match="limit of 2 or more"):
        logit_variance(model, random_data(), limit=1)


def test_masked_pairs_are_left_out():
    model = without_content(build(encoding="lookhere"))
    found = logit_variance(model, random_data(6))
    torch.testing.assert_close(found.position_share, torch.ones(2, 2).double())
    masked = found.mean.isneginf()
    assert masked.any() and not masked.diagonal(dim1=-2, dim2=-1).any()
    visible = found.mean.masked_fill(masked | torch.eye(24, dtype=torch.bool), 0)
    assert visible.sum(-1).abs().max() < 1e-5, "rows are centered on unmasked keys"
    mixed = logit_variance(build(encoding="lookhere", qkv_scale=2.0), random_data(6))
    assert mixed.position_share.isfinite().all() and (mixed.position_share < 1).all()


def test_contrasts_of_alibis_mean_logits_match_its_slopes():
    found = logit_contrasts(logit_variance(without_content(build(encoding="alibi")), random_data(4)).mean, GRID)
    slope = (2.0**-4 + 2.0**-8) / 2
    for layer in (0, 1):
        assert found["neighbors"][layer] > slope and abs(found["same_row_beyond_distance"][layer]) < 0.1 * slope
    masked = logit_contrasts(logit_variance(build(encoding="lookhere"), random_data(4)).mean, GRID)
    assert all(math.isfinite(x) for values in masked.values() for x in values)


def test_average_content_at_a_position_counts_only_on_unshuffled_images():
    data = random_data(200)
    brightness = torch.linspace(0, 1, 18).expand(8, 18)  # brighter and brighter to the right
    split = replace(data.test, images=(data.test.images * brightness).to(torch.uint8))
    data = replace(data, test=split)
    model = build(qkv_scale=2.0)
    assert logit_variance(model, data, limit=None).position_share.min() > 0.02
    assert logit_variance(model, data, limit=None, shuffled=True).position_share.abs().max() < 0.01


def contrasts_of(*heads):
    """Contrasts of one layer with the given heads (N, N)."""
    return {name: only for name, [only] in logit_contrasts(torch.stack(heads)[None], LARGE_GRID).items()}


def test_a_bias_of_rows_columns_or_neighbors_is_measured_exactly():
    found = contrasts_of(3.0 * (DOWN == 0))
    assert found["same_row"] == pytest.approx(3) and found["same_row_beyond_distance"] > 2
    assert found["same_column"] == pytest.approx(-3 * 9 / 63) and found["same_column_beyond_distance"] < -0.3
    assert contrasts_of(2.0 * (ACROSS == 0))["same_column"] == pytest.approx(2)
    found = contrasts_of(5.0 * (DOWN + ACROSS == 1))
    assert found["neighbors"] == pytest.approx(5) and found["two_dimensional"] == pytest.approx(5)


@pytest.mark.parametrize("slope", [1.0, -0.25])
def test_a_bias_of_distance_has_no_contrast_beyond_distance(slope):
    far = torch.hypot(DOWN, ACROSS)
    found = contrasts_of(-slope * far)
    near = DOWN + ACROSS == 1
    assert found["neighbors"] == pytest.approx(slope * (far[OFF_DIAGONAL & ~near].mean() - 1).item())
    for name in NULL_MODELS:
        assert abs(found[f"{name}_beyond_distance"]) < 0.02 * abs(slope) < 0.2 * abs(found[name]) + 0.02, name


def test_constant_logits_have_no_contrasts():
    assert set(contrasts_of(torch.zeros(COUNT, COUNT)).values()) == {0.0}
    assert all(abs(x) < 1e-9 for x in contrasts_of(torch.full((COUNT, COUNT), 4.0)).values())


def test_masked_pairs_of_a_head_are_left_out_of_contrasts():
    draw = torch.Generator().manual_seed(0)
    head = torch.randn(COUNT, COUNT, generator=draw, dtype=torch.float64)
    head[torch.rand(COUNT, COUNT, generator=draw) < 0.3] = -torch.inf
    visible = head.isfinite() & OFF_DIAGONAL
    found = contrasts_of(head)
    assert found["same_row"] == pytest.approx(
        (head[visible & (DOWN == 0)].mean() - head[visible & (DOWN > 0)].mean()).item()
    )
    assert all(map(math.isfinite, found.values()))
    far = torch.hypot(DOWN, ACROSS).masked_fill(~visible, -torch.inf)
    assert all(abs(contrasts_of(far)[f"{name}_beyond_distance"]) < 0.03 for name in NULL_MODELS)
    alone = torch.where(DOWN == 0, 1.0, -torch.inf).double()
    assert math.isnan(contrasts_of(alone)["same_row"]) and contrasts_of(alone)["neighbors"] == 0
    assert contrasts_of(alone, 3.0 * (DOWN == 0))["same_row"] == pytest.approx(3), "mean over heads that are defined"


def test_contrasts_are_averaged_over_heads_but_not_over_layers():
    draw = torch.Generator().manual_seed(1)
    bias = torch.randn(3, 2, COUNT, COUNT, generator=draw)
    found = logit_contrasts(bias, LARGE_GRID)
    each = [contrasts_of(*layer) for layer in bias]
    alone = [[contrasts_of(head) for head in layer] for layer in bias]
    for name, values in found.items():
        assert values == pytest.approx([layer[name] for layer in each])
        assert values == pytest.approx([sum(head[name] for head in layer) / 2 for layer in alone], abs=1e-7)


@pytest.mark.parametrize("grid", [(1, 1), (1, 6), (6, 1), (2, 2), (3, 3), (2, 5)])
def test_any_grid_has_the_contrasts_that_it_has_positions_for(grid):
    count = grid[0] * grid[1]
    found = logit_contrasts(torch.rand(2, 1, count, count), grid)
    assert all(map(math.isfinite, (x for values in found.values() for x in values)))
    assert ("same_row" in found) == (min(grid) > 1) and ("border" in found) == (grid == (3, 3))


def test_logits_of_another_grid_are_rejected():
    with pytest.raises(InputError, match=r"\(2, 3, 6, 6\) do not fit a grid of 2×4"):
        logit_contrasts(torch.zeros(2, 3, 6, 6), (2, 4))

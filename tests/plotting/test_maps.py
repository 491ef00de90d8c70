"""Maps, point grids and image strips, from plain arrays."""

import warnings

import numpy as np
import pytest

from vitpos import plotting
from vitpos.plotting.maps import tile


def test_tiles_show_the_map_of_each_position_at_that_position():
    maps = np.arange(36.0).reshape(6, 6) / 36
    tiles = tile(maps, (2, 3))
    assert tiles.shape == (2 * 3 - 1, 3 * 4 - 1)
    assert np.array_equal(tiles[3:5, 4:7], maps[4].reshape(2, 3)) and np.isnan(tiles[2]).all()


def test_two_tiled_figures_fit_side_by_side():
    assert plotting.tiled_maps(np.eye(14 * 14), (14, 14), title="").get_figwidth() <= 5


@pytest.mark.parametrize("value", [0.0, 1.0, np.nan, -np.inf])
@pytest.mark.parametrize("signed", [False, True])
def test_constant_and_masked_maps_are_drawn_without_warnings(value, signed):
    rows = {"three": np.full((3, 7, 13), value), "six": np.full((6, 7, 13), value)}
    with warnings.catch_warnings(action="error"):
        assert plotting.png(plotting.map_rows(rows, label="bias", signed=signed))


@pytest.mark.parametrize("shape", [(4, 6, 2), (4, 6, 3), (1, 5, 2), (5, 1, 3), (1, 1, 2)])
def test_points_of_any_grid_are_drawn(shape):
    points = np.random.default_rng(0).normal(size=shape)
    assert plotting.png(plotting.point_grid(points, title="points", labels=["a", "b"]))


def test_strips_of_different_lengths_are_drawn():
    rows = {"many": np.zeros((9, 4, 6, 3), np.uint8), "one": np.zeros((1, 4, 6, 3), np.uint8)}
    assert plotting.png(plotting.image_strips(rows))


def test_every_kind_of_figure_has_a_drawing_function():
    assert set(plotting.KINDS) == {"lines", "tiles", "maps", "points", "frequencies", "image_maps"}
    assert plotting.png(plotting.draw("frequencies", {"frequencies": np.ones((5, 2, 3, 2))}))

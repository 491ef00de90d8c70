"""Charts and maps: rendered output shows every series, labels do not overlap, missing values are blank."""

import io

import numpy as np
import pytest
from PIL import Image

from vitpos import plotting

GRAY_RGB = (0xF0, 0xF0, 0xF0)  # of heatmap cells without a color


def pixels(figure):
    """(height, width, 3): the figure as rendered."""
    with Image.open(io.BytesIO(plotting.png(figure))) as image:
        return np.array(image.convert("RGB"))


def contains(figure, color):
    """Whether a color fills more of the rendered figure than the edges of text do."""
    rgb = tuple(int(color[i : i + 2], 16) for i in (1, 3, 5)) if isinstance(color, str) else color
    return (pixels(figure) == rgb).all(-1).mean() > 0.0005


def test_svg_is_the_same_for_the_same_figure():
    one, other = (plotting.scatter({"a": (1.0, 2.0)}, x="x", y="y") for _ in range(2))
    assert plotting.svg(one) == plotting.svg(other)


@pytest.mark.parametrize("count", [7, 8])
def test_bars_have_one_color_per_series_while_there_are_enough_colors(count):
    names = [f"encoding {number}" for number in range(count)]
    figure = plotting.bars({"accuracy": dict.fromkeys(names, (50.0, 1.0, None))}, label="%")
    used = [color for color in plotting.COLORS if contains(figure, color)]
    assert len(used) == (count if count <= len(plotting.COLORS) else 1)


def test_a_heatmap_column_without_values_is_blank():
    def heatmap(last):
        values = np.array([[0.1, last], [0.2, last]])
        return plotting.heatmap(["none", "learned"], ["here", "missing"], values, [["10", "–"], ["20", "–"]], [1, -1])

    assert contains(heatmap(np.nan), GRAY_RGB) and not contains(heatmap(0.5), GRAY_RGB)


@pytest.mark.parametrize("heights", [[0.5] * 5, [0.0, 0.0, 0.98, 0.99, 1.0], [0.1, 0.3, 0.5, 0.7, 0.9], [0.5]])
def test_labels_are_spread_evenly_and_moved_only_if_they_overlap(heights):
    spread = plotting.spread_labels(heights, 0.1)
    assert all(step >= 0.1 - 1e-9 for step in np.diff(spread)) and min(spread) >= 0 and max(spread) <= 1 + 1e-9
    if all(step >= 0.1 for step in np.diff(heights)):
        assert spread == pytest.approx(heights)


def test_line_charts_color_the_highlighted_series():
    series = {name: [(0.0, level, 0.0), (1.0, level, 0.0)] for name, level in (("a", 0.2), ("b", 0.5), ("c", 0.8))}
    figure = plotting.line_chart(series, title="", x="x", y="y", highlighted=["c", "a"])
    assert [contains(figure, color) for color in plotting.COLORS[:3]] == [True, True, False]

"""Scatter plots: labels beside the axes, tooltips."""

import itertools
import xml.etree.ElementTree as ET

from matplotlib.backends.backend_agg import FigureCanvasAgg

from vitpos import plotting

SVG = "{http://www.w3.org/2000/svg}"


def test_labels_are_beside_the_axes_and_do_not_overlap():
    points = {f"point {number}": (80.0 + number / 100, 0.001 * number) for number in range(12)}
    figure = plotting.scatter(points, x="accuracy", y="distance")
    renderer = FigureCanvasAgg(figure).get_renderer()
    boxes = [text.get_window_extent(renderer) for text in figure.axes[0].texts]
    assert len(boxes) == 12 and not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))
    right = figure.axes[0].get_window_extent(renderer).x1
    assert all(right < box.x0 < right + 200 and abs(box.y0) < 2000 for box in boxes)


def test_every_point_has_a_tooltip_also_where_its_name_is_not_written():
    points = {"none": (1.0, 2.0), "learned + <rope>": (2.0, 3.0), 'mine.py:A(b="c")': (3.0, 1.0)}
    groups = dict.fromkeys(points, "added")
    figure = plotting.scatter(points, x="x", y="y", groups=groups, labeled=["none"])
    assert [text.get_text() for text in figure.axes[0].texts] == ["none"]
    titles = [title.text for title in ET.fromstring(plotting.svg_with_tooltips(figure, points)).iter(f"{SVG}title")]
    assert titles == list(points)


def test_a_group_has_the_same_color_in_figures_in_which_other_groups_have_no_points():
    groups = {"a": "added", "b": "bias", "c": "rotary"}
    points = {"a": (1.0, 2.0), "b": (2.0, 3.0), "c": (3.0, 1.0)}
    found = []
    for names in ("abc", "ac"):
        legend = plotting.scatter({name: points[name] for name in names}, x="x", y="y", groups=groups).axes[0]
        handles = legend.get_legend().legend_handles
        found.append({handle.get_label(): handle.get_color() for handle in handles})
    assert found[1] == {kind: found[0][kind] for kind in ("added", "rotary")}

"""Options are checked by their annotation."""

import ast
from typing import Annotated, Any, Literal

import pytest

from vitpos.registry import matches_type
from vitpos.registry.option_types import normalize_value, read_type, type_text


@pytest.mark.parametrize(
    ("annotation", "good", "bad"),
    [
        ("int", [0, -3], [1.5, True, "1", None]),
        ("float", [0, 1.5], [True, "1", None]),
        ("bool", [True], [1, "True"]),
        ("str", ["a"], [1, None]),
        ("int | None", [1, None], [1.5, "x"]),
        ("int | tuple[int, int]", [1, (1, 2), [1, 2]], [(1,), (1, 2, 3), (1, 2.5), "12"]),
        ("tuple[int, ...]", [(), (1, 2, 3)], [1, ("a",)]),
        ("Literal['a', 1]", ["a", 1], ["b", True, 1.0]),
    ],
)
def test_types_are_checked_by_their_annotation(annotation, good, bad):
    for kind in (annotation, eval(annotation, {"Literal": Literal})):  # as source text and as an object
        kind = read_type(ast.parse(kind, mode="eval").body, lambda name: None) if isinstance(kind, str) else kind
        assert all(matches_type(kind, value) for value in good)
        assert not any(matches_type(kind, value) for value in bad)
        assert type_text(kind) == annotation


@pytest.mark.parametrize(
    ("kind", "value", "normal"),
    [
        (float | None, 1, 1.0),
        (float | int, 1, 1),
        (tuple[float, int], [1, 1], (1.0, 1)),
        (tuple[float, ...] | None, [1, 2], (1.0, 2.0)),
        (list[tuple[float, float]], [[1, 2]], ((1.0, 2.0),)),
        (Annotated[float, "meters"], 1, 1.0),
        (Any, [1, [2]], (1, (2,))),
        (tuple, [], ()),
    ],
)
def test_values_of_one_meaning_have_one_form(kind, value, normal):
    assert repr(normalize_value(kind, value)) == repr(normal)

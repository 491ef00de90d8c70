"""Checks the options of `vitpos.convert` before a model is read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from vitpos.encodings._table_interpolation import parse_mode
from vitpos.errors import InputError
from vitpos.interop.convert import Coords
from vitpos.interop.model_spec import encoding_terms
from vitpos.interop.patch_size import parse_patch_mode
from vitpos.lab.conversion_output import Format

ALL = "all"  # the mode that compares all modes
Size = int | tuple[int, int]
Pair = tuple[int, int]


def check_choices(*, mode: str, coords: str | None, patch_mode: str, to: str, encoding: str | None) -> None:
    """Raises an InputError for an option of `vitpos.convert` with a value that is not one of its choices."""
    _check_choice("to", to, get_args(Format))
    if coords is not None:
        _check_choice("coords", coords, get_args(Coords))
    if mode != ALL:
        parse_mode(mode)
    parse_patch_mode(patch_mode)
    if encoding is not None:
        encoding_terms(encoding)


def check_onnx_options(to: str, *, dynamic_size: bool, positions_as_inputs: bool) -> None:
    """Raises an InputError if an option of the export to ONNX is given for another format."""
    for option, value in (("dynamic_size", dynamic_size), ("positions_as_inputs", positions_as_inputs)):
        if value and to != "onnx":
            raise InputError(f"{option} is for ONNX, not for to={to!r}; leave it out, or choose to='onnx'")


def to_sizes(
    grid: Pair | None, patch: Size | None, window: Size | None
) -> tuple[Pair | None, Pair | None, Pair | None]:
    """Returns grid, patch size and window as pairs; raises an InputError if one is not of whole numbers of 1 or more."""
    return (
        _pair("grid", grid, "rows and columns, such as grid=(24, 24)", number=False),
        _pair("patch", patch, "one number or (height, width), such as patch=8", number=True),
        _pair("window", window, "one number or (rows, columns), such as window=12", number=True),
    )


def _check_choice(option: str, value: object, choices: Sequence[str]) -> None:
    if value not in choices:
        raise InputError(f"convert got {option}={value!r}; choose one of {', '.join(choices)}")


def _pair(option: str, value: object, remedy: str, *, number: bool) -> Pair | None:
    if value is None:
        return None
    sides = [value, value] if number and isinstance(value, int) else value
    if not isinstance(sides, tuple | list) or len(sides) != 2 or not all(map(_is_size, sides)):
        raise InputError(f"convert got {option}={value!r}; give {remedy}")
    return sides[0], sides[1]


def _is_size(side: object) -> bool:
    return isinstance(side, int) and not isinstance(side, bool) and side >= 1

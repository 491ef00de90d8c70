"""Parses options with two sides, such as ``--grid 14x14``."""

from __future__ import annotations

from vitpos.errors import InputError


def parse_grid(option: str, text: str) -> tuple[int, int]:
    """Returns (rows, columns) of a text such as ``14x28``; raises an InputError if the text has another form."""
    if "x" not in _plain(text):
        raise InputError(f"{option} {text!r} is not a grid; give rows and columns, such as 24x24")
    return _parse(option, text, "24x24")


def parse_sides(option: str, text: str) -> tuple[int, int]:
    """Returns (rows, columns) of a text such as ``14x28``, or of one number for both; raises an InputError otherwise."""
    return _parse(option, text, "8 or 8x16")


def _parse(option: str, text: str, example: str) -> tuple[int, int]:
    first, times, second = _plain(text).partition("x")
    sides = (first, second) if times else (first, first)
    if not all(side.isascii() and side.isdecimal() and int(side[:6]) > 0 and len(side) < 6 for side in sides):
        raise InputError(f"{option} {text!r} is not a size; give numbers of 1 or more, such as {example}")
    return int(sides[0]), int(sides[1])


def _plain(text: str) -> str:
    return text.lower().replace("×", "x")

"""Words of a stranger, made fit to print: a name in a file may hold line breaks, escape codes or a whole book."""

from __future__ import annotations

PRINTED = 80  # characters of a foreign name that a message shows


def shown(text: object, *, most: int = PRINTED) -> str:
    """The text in one line: what a terminal or a figure takes for a command is escaped, and the middle of much left out."""
    plain = str(text)
    plain = plain if len(plain) <= most else plain[:most] + plain[-most:]  # before a whole book is escaped
    plain = "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in plain)
    plain = plain.replace("$", r"\x24")  # a dollar begins a formula in a figure
    return plain if len(plain) <= most else f"{plain[: most // 2 - 1]}…{plain[-(most // 2) :]}"

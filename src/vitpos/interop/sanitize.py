"""Makes strings from untrusted files safe to print in one line: no line breaks, escape codes or excessive length."""

from __future__ import annotations

MAX_CHARACTERS = 80


def sanitize(text: object, *, limit: int = MAX_CHARACTERS) -> str:
    """Returns ``str(text)`` as one printable line of at most ``limit`` characters.

    The middle of a longer text is replaced by "…". Unprintable characters are escaped, and dollar signs too, which
    matplotlib takes for a formula.
    """
    plain = str(text)
    plain = plain if len(plain) <= limit else plain[:limit] + plain[-limit:]  # before escaping a very long string
    plain = "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in plain)
    plain = plain.replace("$", r"\x24")
    return plain if len(plain) <= limit else f"{plain[: limit // 2 - 1]}…{plain[-(limit // 2) :]}"

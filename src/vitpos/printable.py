"""Makes strings from untrusted files safe to print: control characters, such as terminal escapes, are written out."""

from __future__ import annotations

MAX_CHARACTERS = 80
MAX_MESSAGE = 240  # characters of the message of an exception


def printable(text: object) -> str:
    r"""Returns ``str(text)`` with unprintable characters escaped, as ``\x1b``; line breaks are kept."""
    plain = str(text)
    if plain.replace("\n", "").isprintable():
        return plain
    return "".join(letter if letter.isprintable() or letter == "\n" else repr(letter)[1:-1] for letter in plain)


def sanitize(text: object, *, limit: int = MAX_CHARACTERS) -> str:
    """Returns ``str(text)`` as one printable line of at most ``limit`` characters.

    The middle of a longer text is replaced by "…". Unprintable characters and line breaks are escaped, and dollar signs
    too, which matplotlib takes for a formula.
    """
    plain = str(text)
    plain = plain if len(plain) <= limit else plain[:limit] + plain[-limit:]  # before escaping a very long string
    plain = printable(plain).replace("\n", r"\n").replace("$", r"\x24")
    return plain if len(plain) <= limit else f"{plain[: limit // 2 - 1]}…{plain[-(limit // 2) :]}"


def one_line(error: BaseException) -> str:
    """Returns type and message of an exception as one printable line, such as ``OSError: not found``.

    The middle of a long message is replaced by "…", between two words.
    """
    text = " ".join(str(error).split())
    if len(text) > MAX_MESSAGE:
        half = MAX_MESSAGE // 2 - 2
        text = f"{text[:half].rsplit(' ', 1)[0]} … {text[-half:].split(' ', 1)[-1]}"
    return f"{type(error).__name__}: {sanitize(text, limit=MAX_MESSAGE)}"

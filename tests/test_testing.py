"""The public check of encodings finds what is broken, and says what."""

import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from vitpos.encodings.base import Geometry, PositionEncoding
from vitpos.encodings.learned import Learned
from vitpos.encodings.rope import RoPE
from vitpos.errors import InputError
from vitpos.positions import Positions
from vitpos.testing import EncodingError, check_encoding


class Slope(PositionEncoding):
    """−slope · distance on the logits: keeps every promise."""

    traits = ("translation_invariant",)

    def __init__(self, geometry, *, slope: float = 0.5):
        super().__init__()
        self.slope = slope

    def bias(self, q, k, pos, layer):
        return -self.slope * pos.offsets().norm(dim=-1)[:, None].to(q.dtype)


class SquareRoot(Slope):
    """Infers the grid from the number of tokens."""

    def bias(self, q, k, pos, layer):
        side = round(pos.index.shape[1] ** 0.5)
        rows, columns = torch.arange(pos.index.shape[1]).div(side, rounding_mode="floor"), pos.index[0] % side
        at = torch.stack([rows, columns], -1).to(q.dtype)
        return -(at[:, None] - at[None]).norm(dim=-1)[None, None]


class Cropped(Slope):
    """Works on square grids only."""

    def bias(self, q, k, pos, layer):
        side = int(pos.index.shape[1] ** 0.5)
        return super().bias(q, k, pos, layer) + torch.zeros(side * side, side * side, dtype=q.dtype)


class Remembers(Slope):
    """Keeps the positions of its first call."""

    def bias(self, q, k, pos, layer):
        self.first = getattr(self, "first", pos)
        pos = self.first if self.first.index.shape == pos.index.shape else pos
        return super().bias(q, k, pos, layer)


class FalseTrait(Slope):
    """Declares a trait that it does not have."""

    def bias(self, q, k, pos, layer):
        bias = super().bias(q, k, pos, layer)
        return bias * pos.coords[..., 1].cos()[:, None, None].to(q.dtype)


class Undeclared(Slope):
    """Does not declare a trait that it has."""

    traits = ()


class Double(Slope):
    """Ignores the type of its inputs."""

    def bias(self, q, k, pos, layer):
        return super().bias(q.double(), k, pos, layer)


class Device(Slope):
    """Makes a tensor on a fixed device."""

    def bias(self, q, k, pos, layer):
        return super().bias(q, k, pos, layer) * torch.ones(1, device="cpu")


class Leaks(Slope):
    """Depends on the other images of a batch."""

    def bias(self, q, k, pos, layer):
        return super().bias(q, k, pos, layer) * (1 + q.square().mean()).to(q.dtype)


class Waves(PositionEncoding):
    """Adds sines of the coordinates to the tokens: keeps every promise."""

    def __init__(self, geometry):
        super().__init__()
        self.dim = geometry.dim

    def vectors(self, pos, layer, dtype):
        return self._waves(pos, dtype) if layer == 0 else None

    def _waves(self, pos, dtype):
        frequencies = torch.linspace(0.1, 1, self.dim, device=pos.coords.device, dtype=dtype)
        rows, columns = pos.coords.to(dtype).unbind(-1)
        return (rows[..., None] * frequencies).sin() + (columns[..., None] * frequencies).cos()


class SeesInUpdate(Waves):
    """Adds to all tokens in ``update``, also to the hidden ones: the model cannot take that back."""

    def vectors(self, pos, layer, dtype):
        return None

    def update(self, x, pos, layer):
        return x + self._waves(pos, x.dtype) if layer == 0 else x


class SeesFromPrefix(Slope):
    """A bias for pairs of a prefix token and a patch that depends on where the patch is, also if that is hidden."""

    traits = ("translation_invariant", "biases_prefix")

    def bias(self, q, k, pos, layer):
        row = F.pad(pos.coords.sum(-1).to(q.dtype), (q.shape[2] - pos.index.shape[1], 0))  # (B|1, T)
        return self.slope * (row[:, None] - row[:, :, None])[:, None]


class Enumerates(Waves):
    """Adds a vector by the index of the token among those that are there."""

    def vectors(self, pos, layer, dtype):
        index = torch.arange(pos.index.shape[1], device=pos.index.device, dtype=dtype)
        return (index[None, :, None] * torch.linspace(0.1, 1, self.dim).to(index)).sin() if layer == 0 else None


class DoubleVectors(Waves):
    """Ignores the type that is asked for."""

    def vectors(self, pos, layer, dtype):
        return super().vectors(pos, layer, torch.float64)


class LeaksInUpdate(Waves):
    """Centers tokens over the batch."""

    def update(self, x, pos, layer):
        return x - x.mean(0, keepdim=True)


class ByOrder(Slope):
    """Takes positions from the order of tokens."""

    def bias(self, q, k, pos, layer):
        at = torch.arange(pos.index.shape[1], device=q.device, dtype=q.dtype)
        return -(at[:, None] - at).abs()[None, None]


class Caches(Slope):
    """Leaves an option out of its cache key."""

    def bias(self, q, k, pos, layer):
        return pos.cached(("caches", q.dtype), lambda: Slope.bias(self, q, k, pos, layer).detach())


class Unused(Slope):
    """Has a parameter that does nothing."""

    traits = ("translation_invariant", "learnable")

    def __init__(self, geometry):
        super().__init__(geometry)
        self.weight = nn.Parameter(torch.ones(3))


class Unsaved(Slope):
    """Draws weights that are in no state_dict."""

    def __init__(self, geometry):
        super().__init__(geometry)
        self.slope = float(torch.rand(()))


class Noisy(Slope):
    """Draws at every call."""

    def bias(self, q, k, pos, layer):
        return super().bias(q, k, pos, layer) * torch.rand((), dtype=q.dtype, device=q.device)


@pytest.mark.parametrize(
    ("encoding", "check", "observed"),
    [
        (SquareRoot, "order", "positions are taken from the order of tokens: largest difference"),
        (Cropped, "shapes", "raised RuntimeError: The size of tensor a (12) must match"),
        (Remembers, "state", "a call with other positions depends on the calls before it"),
        (FalseTrait, "traits", "declared 'translation_invariant' (logits of two patches are the same in every crop"),
        (FalseTrait, "traits", "logits of pairs change when both tokens move by the same offset: largest difference"),
        (Undeclared, "traits", "declare 'translation_invariant'"),
        (Double, "dtypes", "with inputs in torch.float32 it mixes types"),
        (Device, "devices", "tensors on two devices are mixed"),
        (Leaks, "batches", "an image changes the output of another: largest difference"),
        (SeesInUpdate, "hidden", "hidden positions are used: largest difference"),
        (SeesFromPrefix, "hidden", "hidden positions are used: largest difference"),
        (Enumerates, "counts", "the vector of a token changes when other tokens are left out"),
        (Enumerates, "order", "positions are taken from the order of tokens: largest difference"),
        (DoubleVectors, "dtypes", "with inputs in torch.float32 it mixes types"),
        (LeaksInUpdate, "batches", "an image changes the output of another: largest difference"),
        (ByOrder, "order", "positions are taken from the order of tokens"),
        (Caches, "sharing", "a cache key lacks an option"),
        (Unused, "gradients", "parameter 'weight' has no useful gradient (none)"),
        (Unsaved, "copies", "register its tensors as buffers"),
        (Noisy, "state", "the same call gives another output"),
    ],
)
def test_a_broken_encoding_is_found(encoding, check, observed):
    with pytest.raises(EncodingError) as error:
        check_encoding(encoding)
    lines = [line for line in str(error.value).splitlines() if line.startswith(f"- {check}: ")]
    assert lines and observed in lines[0], str(error.value)


class Spins(PositionEncoding):
    """Rotates pairs of channels by the row, whether the position is hidden or not: keeps every promise."""

    traits = ("translation_invariant",)

    def __init__(self, geometry):
        super().__init__()

    def rotate(self, q, k, pos, layer):
        cos, sin = (wave[:, None, :, None].to(q.dtype) for wave in (pos.coords[..., 0].cos(), pos.coords[..., 0].sin()))

        def turned(x):
            a, b = x.chunk(2, -1)
            return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)

        return turned(q), turned(k)


@pytest.mark.parametrize("encoding", [Slope, Waves, Spins])
def test_the_model_hides_what_an_encoding_does_not(encoding):
    made, pos, q = encoding(Geometry(32, 2, 2, (3, 4))), Positions.from_grid((3, 4)), torch.randn(1, 2, 12, 16)
    hooks = [
        lambda p: made.vectors(p, 0, q.dtype),
        lambda p: made.bias(q, q, p, 0),
        lambda p: made.rotate(q, q, p, 0)[0],
    ]
    for hook in hooks:  # the encoding itself does the same whether positions are hidden or not
        assert hook(pos) is None or torch.equal(hook(pos), hook(pos.hide(torch.ones(1, 12, dtype=torch.bool))))
    check_encoding(encoding)


def test_the_check_of_hidden_pairs_finds_a_model_that_does_not_hide(monkeypatch):
    monkeypatch.setattr(
        Positions, "known_pairs", lambda pos: torch.ones_like(pos.known[:, None, :, None] & pos.known[:, None, None])
    )
    with pytest.raises(EncodingError, match="- hidden_pairs: a hidden query knows the positions of keys"):
        check_encoding(Slope)


def test_classes_factories_and_specs_pass():
    check_encoding(Slope)
    check_encoding(Slope, slope=2.0)
    check_encoding(lambda geometry: Slope(geometry, slope=0.1))
    check_encoding("learned + rope(base=10)")
    check_encoding("rope", base=10.0)
    check_encoding(Learned, geometry=Geometry(dim=48, heads=3, depth=2, grid=(3, 4)))


def test_what_cannot_be_checked_is_refused():
    with pytest.raises(InputError, match="give its class, a factory or a spec"):
        check_encoding(RoPE(Geometry(32, 2, 2, (3, 4))))
    with pytest.raises(InputError, match="no check 'shape'; did you mean 'shapes'"):
        check_encoding(Slope, skip=["shape"])
    with pytest.raises(InputError, match="makes a int"):
        check_encoding(lambda geometry: 3)


def test_a_made_up_trait_is_refused():
    class MadeUp(Slope):
        traits = ("translation_invariant", "wonderful")

    with pytest.raises(EncodingError, match="declares 'wonderful', which is no trait"):
        check_encoding(MadeUp)


def test_random_numbers_of_the_caller_are_left_alone():
    torch.manual_seed(3)
    check_encoding(Slope)
    drawn = torch.rand(3)
    torch.manual_seed(3)
    assert torch.equal(drawn, torch.rand(3))


def test_from_a_shell_it_prints_a_table(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "from vitpos.encodings.base import PositionEncoding\n"
        "class Good(PositionEncoding):\n"
        "    traits = ('permutation_invariant', 'grid_shape_invariant', 'translation_invariant')\n"
        "    def __init__(self, geometry):\n        super().__init__()\n"
        "class Bad(Good):\n    traits = ()\n"
    )
    for name, code in (("Good", 0), ("Bad", 1), ("Missing", 2)):
        command = [sys.executable, "-m", "vitpos.testing", f"{path}:{name}"]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == code, done.stderr
        assert ("FAILED" in done.stdout) == (name == "Bad") and "Traceback" not in done.stderr

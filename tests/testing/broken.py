"""Encodings that keep every promise, and encodings that each break one."""

import torch
import torch.nn.functional as F
from torch import nn

from vitpos.encodings.base import PositionEncoding


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


class CachesLayer(Slope):
    """Leaves the layer out of its cache key."""

    def bias(self, q, k, pos, layer):
        return self.cached(pos, "bias", lambda: Slope.bias(self, q, k, pos, layer) * (1 + layer), q.dtype)


class CachesTraining(Slope):
    """Leaves the mode out of its cache key."""

    def bias(self, q, k, pos, layer):
        return self.cached(pos, "bias", lambda: Slope.bias(self, q, k, pos, layer) * (1 + self.training), q.dtype)


class CachesHeads(Slope):
    """Leaves the number of heads out of its cache key."""

    def bias(self, q, k, pos, layer):
        slopes = torch.arange(1, q.shape[1] + 1, dtype=q.dtype, device=q.device)[:, None, None]
        return self.cached(pos, "bias", lambda: Slope.bias(self, q, k, pos, layer) * slopes, q.dtype)


class CachesMean(Slope):
    """As CachesHeads, with a table whose shape does not depend on the number of heads."""

    def bias(self, q, k, pos, layer):
        return self.cached(pos, "bias", lambda: Slope.bias(self, q, k, pos, layer) / q.shape[1], q.dtype)


class Unused(Slope):
    """Has a parameter that does nothing."""

    traits = ("translation_invariant", "learnable")

    def __init__(self, geometry):
        super().__init__(geometry)
        self.weight = nn.Parameter(torch.ones(3))


class NoEffect(Unused):
    """Multiplies a parameter by zero."""

    def bias(self, q, k, pos, layer):
        return super().bias(q, k, pos, layer) + 0 * self.weight.sum()


class Unsaved(Slope):
    """Draws weights that are in no state_dict."""

    def __init__(self, geometry):
        super().__init__(geometry)
        self.slope = float(torch.rand(()))


class Noisy(Slope):
    """Draws at every call."""

    def bias(self, q, k, pos, layer):
        return super().bias(q, k, pos, layer) * torch.rand((), dtype=q.dtype, device=q.device)


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

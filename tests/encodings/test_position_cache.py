"""Cached tables stay within a bound and are not shared between encodings with other weights."""

from dataclasses import replace

import pytest
import torch

from vitpos.encodings import ENCODINGS
from vitpos.encodings.base import Geometry, PositionEncoding
from vitpos.models import MODELS
from vitpos.models.attention import attention_logits
from vitpos.models.token_embedding import embed
from vitpos.positions import GRID_TABLES, Positions

GRID = (3, 4)


@pytest.mark.parametrize("spec", ["lookhere", "relative", "alibi", "decomposed", "irpe"])
def test_a_pass_on_a_large_grid_leaves_a_bounded_number_of_bytes(spec):
    before = GRID_TABLES.bytes
    model = MODELS.build("vit(patch=2, dim=48, depth=4, heads=12, pool='mean')", (1, 56, 56), 3, spec)
    with torch.inference_mode():
        model(torch.zeros(1, 1, 56, 56))
    pairs = (28 * 28) ** 2
    assert GRID_TABLES.bytes - before <= 13 * 4 * pairs and GRID_TABLES.bytes <= GRID_TABLES.max_bytes


class Sampled(PositionEncoding):
    """Adds a vector that depends on a random buffer, and caches it."""

    def __init__(self, geometry, *, as_buffer=True):
        super().__init__()
        if as_buffer:
            self.register_buffer("direction", torch.randn(2, geometry.dim))
        else:
            self.direction = torch.randn(2, geometry.dim)

    def vectors(self, pos, layer, dtype):
        return self.cached(pos, "vectors", lambda: (pos.coords @ self.direction).to(dtype), dtype)


@pytest.mark.parametrize("as_buffer", [True, False])
def test_what_depends_on_a_random_tensor_is_not_shared(as_buffer):
    geometry, pos = Geometry(8, 2, 1, GRID), Positions.from_grid(GRID)
    one, other = (Sampled(geometry, as_buffer=as_buffer) for _ in range(2))
    assert not torch.equal(one.vectors(pos, 0, torch.float32), other.vectors(pos, 0, torch.float32))


@pytest.mark.parametrize("spec", list(ENCODINGS))
def test_two_instances_with_other_weights_called_in_turn_do_not_share_values(spec):
    geometry, pos = Geometry(32, 2, 2, GRID, 1), Positions.from_grid(GRID)

    def outputs(encoding):
        x = torch.randn(2, 12, 32, generator=torch.Generator().manual_seed(0))
        x = embed(encoding, x, pos, 0)
        q = torch.cat([x[:, :1], x], 1).unflatten(2, (2, 16)).transpose(1, 2)
        return attention_logits(q, q.flip(-1), encoding, pos, 1, x)

    def build(seed):
        torch.manual_seed(seed)
        encoding = ENCODINGS.build(spec, geometry).eval()
        with torch.no_grad():
            for parameter in encoding.parameters():
                parameter.copy_(torch.randn_like(parameter))
        return encoding

    one, other = build(1), build(2)
    alone = [outputs(encoding).detach() for encoding in (build(1), build(2))]
    first, second, again = outputs(one), outputs(other), outputs(one)
    assert torch.equal(first, again) and torch.equal(first, alone[0]) and torch.equal(second, alone[1])


class Scaled(PositionEncoding):
    """Caches a bias that depends on an option in a list or in a module of its own."""

    class Scale(torch.nn.Module):
        def __init__(self, value):
            super().__init__()
            self.value = value

    def __init__(self, geometry, *, scales=(1.0,), as_module=False):
        super().__init__()
        self.scales = self.Scale(scales[0]) if as_module else list(scales)

    def bias(self, q, k, pos, layer):
        scale = self.scales.value if isinstance(self.scales, torch.nn.Module) else self.scales[0]
        return self.cached(pos, "bias", lambda: scale * pos.offsets().norm(dim=-1)[:, None])


@pytest.mark.parametrize("as_module", [True, False])
def test_what_depends_on_a_list_or_on_an_own_module_is_not_shared(as_module):
    geometry, pos, q = Geometry(8, 2, 1, GRID), Positions.from_grid(GRID), torch.zeros(1, 2, 12, 4)
    one, other = (Scaled(geometry, scales=(scale,), as_module=as_module) for scale in (1.0, 5.0))
    assert torch.allclose(5 * one.bias(q, q, pos, 0), other.bias(q, q, pos, 0))


@pytest.mark.parametrize("spec", [spec for spec in ENCODINGS if spec != "mjp"])
def test_built_in_encodings_without_buffers_use_the_cache(spec):
    encoding, pos, made = ENCODINGS.build(spec, Geometry(64, 4, 2, GRID, 1)).eval(), Positions.from_grid(GRID), []
    for _ in range(2):
        encoding.cached(pos, "probe of a test", lambda: made.append(1))
    assert len(made) == (2 if list(encoding.buffers()) else 1)


@pytest.mark.parametrize("prefix_mode", ["center", "learned"])
@pytest.mark.parametrize("name", ["rope_golden", "rope_dino", "rope", "rope_spiral"])
def test_angles_are_computed_in_full_precision_under_autocast(name, prefix_mode):
    encoding = ENCODINGS.build(f"{name}(prefix_mode={prefix_mode!r})", Geometry(32, 2, 1, (28, 28), 1)).eval()
    pos, q = Positions.from_grid((28, 28)), torch.randn(1, 2, 28 * 28, 16, generator=torch.Generator().manual_seed(0))
    with torch.autocast("cpu", torch.bfloat16):
        rotated = encoding.rotate(q, q, replace(pos), 0)[0]
    assert torch.equal(rotated, encoding.rotate(q, q, replace(pos), 0)[0])


def test_cape_is_computed_in_full_precision_under_autocast():
    encoding, pos = ENCODINGS.build("cape", Geometry(32, 2, 1, (28, 28))).eval(), Positions.from_grid((28, 28))
    with torch.autocast("cpu", torch.bfloat16):
        vectors = encoding.vectors(replace(pos), 0, torch.float32)
    assert torch.equal(vectors, encoding.vectors(replace(pos), 0, torch.float32))

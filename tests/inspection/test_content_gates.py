"""Gates, counts and content correlation of encodings that count positions by content."""

import pytest
import torch

from tests.inspection.models import GRID, MODEL_SPECS, VIT_SPECS, build, normalized, random_data
from vitpos.encodings import ENCODINGS
from vitpos.encodings._interp1d import interp1d
from vitpos.encodings.base import Geometry
from vitpos.errors import InputError
from vitpos.inspection.content_gates import bias_content_correlation, gates_from_position
from vitpos.models.activations import capture_activations
from vitpos.positions import Positions


def random_sape2(spec=VIT_SPECS[0], encoding="sape2", std=1.0):
    model = build(spec, encoding, qkv_scale=2.0)
    with torch.no_grad():
        for parameter in model.encoding.parameters():
            parameter.normal_(std=std)
    return model


@pytest.mark.parametrize(
    "options",
    ["", "per_axis=False", "axes='rows'", "axes='columns'", "scale_gates=False", "gates=False", "mode='query'"],
)
def test_the_bias_of_sape2_follows_from_its_counts(options):
    part = ENCODINGS.build(f"sape2({options})", Geometry(16, 2, 1, GRID))
    torch.manual_seed(0)
    q, k = torch.randn(2, 3, 2, 25, 8)  # with a prefix token
    pos = Positions.from_grid(GRID)
    expected = part.bias(q, k, pos, 0)
    total = torch.zeros_like(expected)
    for (gates, counts), table in zip(part.counts(q, k, pos, 0), part.tables, strict=True):
        counted = ~counts.isnan()
        length = int(counted[0, 0, 0].sum())
        assert (counted.sum(-1) == length).all() and torch.equal(counted, ~gates.isnan())
        lines = counts[counted].unflatten(0, (3, 2, 24, length))
        z = interp1d((k if part.mode == "key" else q)[:, :, 1:] @ table[0].mT, lines)
        total += torch.cdist(z, z) * part.factor
        assert (lines[..., :-1] >= lines[..., 1:]).all(), "counts decrease towards the edge"
    torch.testing.assert_close(total, expected, atol=1e-5, rtol=1e-3)


@pytest.mark.parametrize("encoding", ["sape2", "learned + sape2 + mjp", "cope", "rope + cope(causal=True)"])
@pytest.mark.parametrize("spec", [VIT_SPECS[2], MODEL_SPECS[-1]])
def test_gates_and_counts_from_a_position_cover_its_row_and_column_or_all_patches(encoding, spec):
    model, images = build(spec, encoding), normalized(random_data())
    found = gates_from_position(model, images, (1, 4))
    assert len(found) == (2 if "sape2" in encoding else 1)
    for one in found:
        assert one.gates.shape == one.counts.shape == (3, model.geometry.heads, *GRID)
    if "sape2" in encoding:
        row, column = found
        assert not row.gates[:, :, 1].isnan().any() and row.gates[:, :, [0, 2, 3]].isnan().all()
        assert not column.counts[..., 4].isnan().any() and column.counts[..., :4].isnan().all()
        torch.testing.assert_close(row.counts[:, :, 1, 0], row.gates[:, :, 1].sum(-1))
    else:
        torch.testing.assert_close(found[0].counts[..., 0, 0], found[0].gates.sum((-1, -2)))
    with pytest.raises(InputError, match=r"position \(4, 0\)"):
        gates_from_position(model, images, (4, 0))


def test_encodings_without_content_gates_are_rejected():
    with pytest.raises(InputError, match="sape2 or cope"):
        bias_content_correlation(build(encoding="relative"), random_data())


def test_bias_content_correlation_equals_a_partial_correlation_written_out():
    model, data = random_sape2(), random_data(3)
    found = bias_content_correlation(model, data)
    calls = []
    with torch.inference_mode():
        capture_activations(model, normalized(data), on_attention=calls.append)
        one = calls[1]
        bias = model.encoding.bias(*one.queries_and_keys(), one.pos, 1).double()
        x = torch.nn.functional.normalize(one.x[:, 1:].double(), dim=-1)
    groups = {}
    for i in range(24):
        for n in range(24):
            if i != n:
                groups.setdefault((abs(i // 6 - n // 6), abs(i % 6 - n % 6)), []).append((i, n))
    for head in range(2):
        each = []
        for image in range(3):
            left, right = [], []
            for pairs in groups.values():
                i, n = torch.tensor(pairs).T
                for values, into in ((bias[image, head, i, n], left), ((x[image, i] * x[image, n]).sum(1), right)):
                    into.append(values - values.mean())
            each.append(torch.corrcoef(torch.stack([torch.cat(left), torch.cat(right)]))[0, 1])
        assert found.mean[1, head].item() == pytest.approx(torch.stack(each).mean().item(), abs=1e-5)
        assert found.std[1, head].item() == pytest.approx(torch.stack(each).std().item(), abs=1e-5)


@pytest.mark.parametrize("spec", MODEL_SPECS)
def test_the_bias_of_sape2_is_smaller_between_similar_patches(spec):
    """It is a distance between functions of the patches."""
    found = bias_content_correlation(random_sape2(spec), random_data(30))
    assert (found.mean < -0.05).all() and (found.std > 0).all() and found.images == 30
    negated = bias_content_correlation(random_sape2(spec, "sape2(sign=-1)"), random_data(30))
    assert (negated.mean > 0.05).all()


def test_the_correlation_of_a_zero_bias_is_nan():
    assert bias_content_correlation(build(encoding="cope"), random_data(4)).mean.isnan().all(), (
        "its table is initialized with zeros"
    )

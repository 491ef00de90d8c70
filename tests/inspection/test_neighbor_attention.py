"""Attention between adjacent patches, by the difference of their pixels."""

import pytest
import torch

from tests.inspection.models import GRID, PATCH, VIT_SPECS, build, random_data, without_content
from vitpos.data.dataset import Dataset, Split
from vitpos.errors import InputError
from vitpos.inspection.neighbor_attention import adjacent_pairs, neighbor_attention
from vitpos.models.activations import capture_activations


def test_every_adjacent_pair_is_there_once():
    cells = [(i // 6, i % 6) for i in range(24)]
    pairs = {tuple(sorted(pair)) for pair in adjacent_pairs(GRID).mT.tolist()}
    expected = {
        (i, j)
        for i, a in enumerate(cells)
        for j, b in enumerate(cells)
        if i < j and abs(a[0] - b[0]) + abs(a[1] - b[1]) == 1
    }
    assert pairs == expected and adjacent_pairs(GRID).shape == (2, len(expected))


@pytest.mark.parametrize(("spec", "encoding"), [(VIT_SPECS[0], "learned + sape2"), (VIT_SPECS[2], "gpsa")])
def test_the_numbers_are_those_of_a_loop_over_pairs(spec, encoding):
    model, data = build(spec, encoding, qkv_scale=4.0), random_data(5)
    found = neighbor_attention(model, data, fraction=0.2, limit=None)
    pairs = adjacent_pairs(GRID).mT.tolist()
    sums = torch.zeros(2, 2, dtype=torch.float64)  # layer, (like, unlike)
    for image in data.normalize(data.test.images).split(1):
        calls = []
        with torch.no_grad():
            capture_activations(model, image, on_attention=calls.append)
            weights = [call.weights()[0, :, call.num_prefix :, call.num_prefix :].double() for call in calls]
        patch = {
            cell: image[0, :, PATCH[0] * (cell // 6) : PATCH[0] * (cell // 6 + 1), PATCH[1] * (cell % 6) :][
                ..., : PATCH[1]
            ]
            for cell in range(24)
        }
        distances = torch.tensor([(patch[i] - patch[j]).double().norm().item() for i, j in pairs])
        order = distances.argsort().tolist()
        chosen = order[:8], order[-8:]  # of 38 pairs, up to the 20 % quantile between the 8th and the 9th
        for layer, each in enumerate(weights):
            each = each / each.sum(-1, keepdim=True)
            for kind, members in enumerate(chosen):
                values = [each[:, a, b].mean() for p in members for a, b in (pairs[p], pairs[p][::-1])]
                sums[layer, kind] += 24 * sum(values) / len(values) / 5
    torch.testing.assert_close(torch.stack([found.like, found.unlike], 1), sums, atol=1e-5, rtol=1e-5)
    assert found.images == 5


def test_attention_by_position_alone_treats_like_and_unlike_neighbors_equally():
    model = without_content(build(encoding="alibi"))
    found = neighbor_attention(model, random_data(200), limit=None)
    torch.testing.assert_close(found.like, found.unlike, rtol=0.05, atol=0)
    assert (found.like > 1).all(), "alibi favors neighbors"
    uniform = neighbor_attention(without_content(build()), random_data(4))
    torch.testing.assert_close(uniform.unlike, torch.ones(2, dtype=torch.float64), rtol=1e-5, atol=0)


def test_images_of_one_color_do_not_count():
    data = random_data(4)
    images = data.test.images.clone()
    images[1] = 7
    split = Split(images, data.test.labels)
    blank = Dataset(split, split, data.classes, data.mean, data.std)
    rest = data.test.subset(torch.tensor([0, 2, 3]))
    others = Dataset(rest, rest, data.classes, data.mean, data.std)
    model = build(encoding="learned", qkv_scale=4.0)
    found, expected = neighbor_attention(model, blank), neighbor_attention(model, others)
    assert found.images == 3
    torch.testing.assert_close(found.unlike, expected.unlike, rtol=1e-5, atol=0)


def test_a_fraction_of_half_or_more_is_refused():
    with pytest.raises(InputError, match=r"fraction=0\.5; choose one above 0 and below 0\.5"):
        neighbor_attention(build(), random_data(2), fraction=0.5)

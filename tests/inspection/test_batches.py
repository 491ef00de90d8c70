"""Batches of test images, unchanged and with permuted patches."""

import torch

from tests.inspection.models import build, random_data
from vitpos.inspection._batches import image_batches


def test_shuffled_images_have_the_same_patches_in_a_different_order_each():
    model, data = build(), random_data(7)
    plain = torch.cat(list(image_batches(model, data, limit=None)))
    shuffled = torch.cat(list(image_batches(model, data, limit=None, shuffled=True)))
    selected = torch.cat(list(image_batches(model, data, limit=None, shuffled=True, indices=torch.tensor([1, 4]))))
    assert torch.equal(selected, shuffled[[1, 4]]), "selecting images does not change them"
    with torch.inference_mode():
        before, after = (model.patch_tokens(x).sum(2).sort(1).values for x in (plain, shuffled))
    torch.testing.assert_close(before, after)
    assert not any(torch.equal(a, b) for a, b in zip(plain, shuffled, strict=True))

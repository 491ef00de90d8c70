"""Models of timm, Hugging Face and anybody else get the numbers that our own model with the same weights gets."""

import pytest
import torch
from torch import nn

import vitpos
from tests.references import peer
from vitpos import Positions, ViT
from vitpos.data.dataset import load
from vitpos.errors import InputError
from vitpos.evaluations.context import EvalContext
from vitpos.inspection.attention_stats import mean_attention
from vitpos.interop.timm import to_timm
from vitpos.interop.wrapped_models import as_classifier
from vitpos.models.activations import layer_tokens_and_logits

PATCH, DIM, DEPTH, HEADS = (7, 4), 32, 2, 2
EVALUATIONS = [
    "accuracy",
    "shuffle(mask_ratio=0.5)",
    "shuffle(mask_ratio=0.5, positions='follow')",
    "jigsaw",
    "translation(by=(1, 1), border='crop')",
    "corruption(corruptions=('contrast',), severities=(3,))",
]


@pytest.fixture(scope="module")
def data():
    return load("mnist(limit=100, test_limit=120)")


def pair(encoding: str) -> tuple[ViT, nn.Module]:
    """Returns our model, and timm's with the same random weights and the same encoding attached."""
    timm = peer("timm")
    torch.manual_seed(0)
    own = ViT((1, 28, 28), 10, encoding, patch=PATCH, dim=DIM, depth=DEPTH, heads=HEADS).eval()
    with torch.no_grad():
        for parameter in own.parameters():
            parameter.copy_(torch.randn_like(parameter) * (0.2 if parameter.ndim > 1 else 0.5))
    plain = ViT((1, 28, 28), 10, patch=PATCH, dim=DIM, depth=DEPTH, heads=HEADS)
    plain.load_state_dict({key: value for key, value in own.state_dict().items() if not key.startswith("encoding.")})
    theirs = timm.models.VisionTransformer(
        img_size=28, in_chans=1, patch_size=PATCH, embed_dim=DIM, depth=DEPTH, num_heads=HEADS, num_classes=10,
        pos_embed="none",
    ).eval()  # fmt: skip
    theirs.load_state_dict(to_timm(plain))
    vitpos.attach(theirs, encoding).position_encoding.load_state_dict(own.encoding.state_dict())
    return own, theirs


@pytest.mark.parametrize("encoding", ["learned", "rope", "relative"])
def test_an_attached_model_gets_the_numbers_of_ours(data, encoding):
    own, theirs = pair(encoding)
    expected, found = (vitpos.evaluate(model, data, EVALUATIONS) for model in (own, theirs))
    for spec in expected:
        for metric, number in expected[spec].numbers.items():
            assert found[spec].numbers[metric] == pytest.approx(number, abs=1e-4), (spec, metric)
        assert found[spec].numbers.keys() == expected[spec].numbers.keys(), spec


def test_hidden_positions_and_activations_of_an_attached_model(data):
    own, theirs = pair("learned + mjp + rope")
    spec = "shuffle(mask_ratio=0.5, hide_masked=True)"
    assert vitpos.evaluate(theirs, data, spec)[spec].numbers == pytest.approx(
        vitpos.evaluate(own, data, spec)[spec].numbers, abs=1e-4
    )
    x = data.normalize(data.test.images[:3])
    pos = Positions.from_grid((4, 7)).permute(torch.randperm(28))
    with as_classifier(theirs, data) as wrapped, torch.no_grad():
        for ours, other in zip(
            layer_tokens_and_logits(own, x, pos), layer_tokens_and_logits(wrapped, x, pos), strict=True
        ):
            assert len(ours) == len(other) == DEPTH
            assert all(torch.allclose(a, b, atol=1e-4) for a, b in zip(ours, other, strict=True))
        assert wrapped.forward_features(x).shape == (3, DIM)
        assert torch.allclose(*(mean_attention(model, data, limit=8) for model in (own, wrapped)), atol=1e-4)


def test_a_plain_timm_model_is_left_as_it_was(data):
    _, model = pair("learned")
    vitpos.detach(model)
    before, classes = (
        {key: value.clone() for key, value in model.state_dict().items()},
        [type(m) for m in model.modules()],
    )
    model.train()
    found = vitpos.evaluate(model, data, ["accuracy", "shuffle(mask_ratio=1.0, positions='follow')"])
    assert (
        found["accuracy"].numbers["accuracy"]
        == found["shuffle(mask_ratio=1.0, positions='follow')"].numbers["accuracy"]
    )
    assert model.training and [type(m) for m in model.modules()] == classes
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


def test_a_hugging_face_classifier(data):
    transformers = peer("transformers")
    config = transformers.ViTConfig(
        hidden_size=DIM, num_hidden_layers=DEPTH, num_attention_heads=HEADS, intermediate_size=64, image_size=28,
        patch_size=7, num_channels=1, num_labels=10,
    )  # fmt: skip
    model = transformers.ViTForImageClassification(config)
    found = vitpos.evaluate(model, data, ["accuracy", "shuffle(mask_ratio=0.5)", "translation(by=(1, 0))"])
    labels = data.test.labels
    with torch.no_grad():
        logits = model.eval()(data.normalize(data.test.images)).logits
    assert found["accuracy"].numbers["accuracy"] == pytest.approx((logits.argmax(1) == labels).double().mean().item())
    assert "token_error" in found["translation(by=(1, 0))"].numbers


def test_any_module_is_a_classifier_without_patches(data):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 4, 5, 2), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 144, 10))
    without_patches = ["shuffle(mask_ratio=0.5, grid=(4, 4))", "translation(by=(3, 3), unit='pixels')"]
    specs = ["accuracy", *without_patches, "resolution(size=(14, 14))"]
    found = vitpos.evaluate(model, data, specs)
    assert found["resolution(size=(14, 14))"].reason == "the model has no patches"
    with torch.no_grad():
        expected = (model(data.normalize(data.test.images)).argmax(1) == data.test.labels).double().mean().item()
    assert found["accuracy"].numbers["accuracy"] == pytest.approx(expected)
    with pytest.raises(InputError, match="unit='pixels'"):
        vitpos.evaluate(model, data, "translation")


def test_the_normalization_that_a_timm_model_names_is_used(data):
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
    model.pretrained_cfg = {"mean": (0.5,), "std": (0.5,)}
    with as_classifier(model, data) as wrapped, torch.no_grad():
        expected = model((data.test.images[:4] / 255 - 0.5) / 0.5)
        assert torch.allclose(wrapped(data.normalize(data.test.images[:4])), expected, atol=1e-4)


def test_what_does_not_fit_gets_one_line(data):
    for model, message in [
        (nn.Conv2d(3, 10, 3), "does not take images of shape"),
        (nn.Conv2d(1, 10, 3), "returns no logits"),
        (nn.Sequential(nn.Flatten(), nn.Linear(784, 7)), "7 outputs"),
    ]:
        with pytest.raises(InputError, match=message):
            vitpos.evaluate(model, data)
    with pytest.raises(InputError, match="torch module"):
        vitpos.evaluate(3, data)
    own, theirs = pair("learned")
    with pytest.raises(InputError, match="resize_tables"):
        vitpos.evaluate(theirs, data, "resolution(size=(28, 56), resize_tables='bicubic')")
    assert EvalContext(own, data).evaluate("closed_form(images=1)").reason == ""
    assert vitpos.evaluate(theirs, data, "closed_form(images=1)")["closed_form(images=1)"].reason


class EncoderClassifier(nn.Module):
    """Patches of 7×7 pixels, torch's encoder, and the mean of its tokens."""

    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(DIM, HEADS, 64, 0.0, batch_first=True)
        self.project, self.head = nn.Conv2d(1, DIM, 7, 7), nn.Linear(DIM, 10)
        self.encoder = nn.TransformerEncoder(layer, DEPTH, enable_nested_tensor=False)

    def forward(self, images):
        return self.head(self.encoder(self.project(images).flatten(2).mT).mean(1))


def test_an_attached_encoder_of_tokens_is_evaluated_as_a_model_without_patches(data):
    model = vitpos.attach(EncoderClassifier().eval(), "relative", grid=(4, 4))
    found = vitpos.evaluate(model, data, ["accuracy", "shuffle(mask_ratio=0.5, grid=(4, 4))"])
    with torch.no_grad():
        right = model(data.normalize(data.test.images[:])).argmax(1) == data.test.labels
    assert found["accuracy"].numbers["accuracy"] == pytest.approx(right.double().mean().item())
    assert 0 <= found["shuffle(mask_ratio=0.5, grid=(4, 4))"].numbers["consistency"] <= 1  # shuffled in pixels
    with pytest.raises(InputError, match="for a model without patches"):
        vitpos.evaluate(model, data, "shuffle(mask_ratio=0.5)")

"""Names known from other libraries lead to the names used here."""

import pytest

from vitpos.cli.descriptions import REGISTRIES
from vitpos.data import DATASETS
from vitpos.encodings import ENCODINGS
from vitpos.lab.settings import KEYS
from vitpos.models import MODELS
from vitpos.registry import suggest
from vitpos.registry.suggestions import SYNONYMS


@pytest.mark.parametrize(
    ("name", "known", "meant"),
    [
        ("RoPE", ENCODINGS, "rope"),
        ("Rope-Mixed", ENCODINGS, "rope_mixed"),
        ("rotary", ENCODINGS, "rope"),
        ("imagenet", DATASETS, "image_folder"),
        ("theta", ENCODINGS.describe("rope").options, "base"),
        ("base", ENCODINGS.describe("sinusoidal").options, "temperature"),
        ("learning_rate", KEYS, "train.lr"),
        ("train.learning_rate", KEYS, "train.lr"),
        ("train.decay", KEYS, "train.weight_decay"),
        ("batch", KEYS, "train.batch_size"),
        ("train.clip", KEYS, "train.grad_clip"),
        ("train.epoch", KEYS, "train.epochs"),
        ("patch_size", MODELS.describe("vit").options, "patch"),
        ("num_heads", MODELS.describe("vit").options, "heads"),
    ],
)
def test_a_name_from_elsewhere_is_understood(name, known, meant):
    assert suggest(name, known) == f"did you mean {meant!r}?"


def test_every_synonym_suggests_something_that_exists():
    options = {key for registry in REGISTRIES.values() for name in registry for key in registry.describe(name).options}
    names = {name for registry in REGISTRIES.values() for name in registry} | options | {k[6:] for k in KEYS}
    assert {ours for several in SYNONYMS.values() for ours in several} <= names
    assert not [name for name, several in SYNONYMS.items() if name in several]

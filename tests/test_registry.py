import ast
import subprocess
import sys
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vitpos.cli.entries import REGISTRIES, explain
from vitpos.data import DATASETS
from vitpos.encodings import ENCODINGS
from vitpos.evaluations import EVALUATIONS
from vitpos.lab.settings import KEYS
from vitpos.models import MODELS
from vitpos.registry import matches_type, suggest
from vitpos.registry.descriptions import describe_object
from vitpos.registry.option_types import read_type, type_text
from vitpos.registry.suggestions import SYNONYMS


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("learnt", "no encoding 'learnt'; did you mean 'learned'?"),
        ("learned(sdt=1.0)", "encoding 'learned' has no option 'sdt'; did you mean 'std'?"),
        ("none(std=1.0)", "encoding 'none' has no option 'std'; it takes none"),
        ("learned(std='x')", "encoding 'learned': option 'std' takes float, not 'x'"),
        ("learned(std=True)", "takes float, not True"),
        ("learned(interpolation='nearest')", "takes one of 'bicubic', 'bilinear', not 'nearest'"),
        ("learned(interpolation=bilinear)", "write interpolation='bilinear' with quotes"),
        ("learned(std=1+__import__('os').getpid())", "not a value"),
        ("learned(std=1.0, std=2.0)", "given twice"),
        ("learned(std={[]: 1})", "not a value"),
        ("learned(0.1)", "cannot read encoding spec"),
        ("learned + ", "cannot read encoding spec"),
        ("learned - sinusoidal", "cannot read encoding spec"),
        ("", "cannot read encoding spec"),
        ("__import__('os').system('true')", "cannot read encoding spec"),
    ],
)
def test_a_wrong_spec_names_itself_and_the_remedy(spec, message):
    with pytest.raises(ValueError) as error:
        ENCODINGS.parse(spec)
    assert message in str(error.value)


def test_a_spec_has_one_spelling():
    messy = 'learned( interpolation = "bilinear",std=1 )+sinusoidal'
    assert ENCODINGS.canonical(messy) == "learned(std=1.0, interpolation='bilinear') + sinusoidal"
    assert EVALUATIONS.canonical("jigsaw(seed=1,grid=[7,7])") == "jigsaw(grid=(7, 7), seed=1)"


@given(
    st.dictionaries(st.sampled_from(["std"]), st.floats(0, 10))
    | st.dictionaries(st.sampled_from(["interpolation"]), st.sampled_from(["bicubic", "bilinear"]))
)
def test_what_a_term_writes_it_reads_back(options):
    text = ", ".join(f"{key}={value!r}" for key, value in options.items())
    (term,) = ENCODINGS.parse(f"learned({text})")
    assert term.options == options
    assert ENCODINGS.parse(str(term)) == [term]


@pytest.mark.parametrize(
    ("annotation", "good", "bad"),
    [
        ("int", [0, -3], [1.5, True, "1", None]),
        ("float", [0, 1.5], [True, "1", None]),
        ("bool", [True], [1, "True"]),
        ("str", ["a"], [1, None]),
        ("int | None", [1, None], [1.5, "x"]),
        ("int | tuple[int, int]", [1, (1, 2), [1, 2]], [(1,), (1, 2, 3), (1, 2.5), "12"]),
        ("tuple[int, ...]", [(), (1, 2, 3)], [1, ("a",)]),
        ("Literal['a', 1]", ["a", 1], ["b", True, 1.0]),
    ],
)
def test_types_are_checked_by_their_annotation(annotation, good, bad):
    for kind in (annotation, eval(annotation, {"Literal": Literal})):  # as source text and as an object
        kind = read_type(ast.parse(kind, mode="eval").body, lambda name: None) if isinstance(kind, str) else kind
        assert all(matches_type(kind, value) for value in good)
        assert not any(matches_type(kind, value) for value in bad)
        assert type_text(kind) == annotation


@pytest.mark.parametrize("kind", REGISTRIES)
def test_what_the_source_says_is_what_the_object_takes(kind):
    registry = REGISTRIES[kind]
    for name in registry:
        entry, thing = registry.describe(name), describe_object(name, registry[name], registry.positional)
        assert entry.options == thing.options and not thing.open
        assert {key: thing.attributes[key] for key in entry.attributes} == entry.attributes
        assert entry.summary, f"{name} has no docstring"
        assert all(matches_type(option.type, option.default) for option in entry.options.values())


def test_listing_and_checking_need_no_torch():
    code = (
        "import sys, vitpos.cli.main, vitpos.cli.entries as l, vitpos.lab.experiment as e;"
        "[l.entries(k) for k in l.KINDS]; e.Experiment.load('mnist-jigsaw');"
        "sys.exit(any(m in sys.modules for m in ('torch', 'numpy', 'matplotlib')))"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


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


def test_one_entry_is_explained_with_options_source_and_traits():
    text = explain("encodings", "learned")
    assert "source: Dosovitskiy" in text and "std" in text and "float = 0.02" in text
    assert "it has parameters" in text and "Args:" not in text

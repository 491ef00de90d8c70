"""Specs have one spelling; errors give the wrong part and the remedy."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vitpos.encodings import ENCODINGS
from vitpos.evaluations import EVALUATIONS


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("learnt", "no encoding 'learnt'; did you mean 'learned'?"),
        ("learned(sdt=1.0)", "encoding 'learned' has no option 'sdt'; did you mean 'std'?"),
        ("none(std=1.0)", "encoding 'none' has no option 'std'; there are none"),
        ("learned(std='x')", "encoding 'learned': option 'std' takes float, not 'x'"),
        ("learned(std=True)", "takes float, not True"),
        ("learned(interpolation='nearest')", "takes one of 'bicubic', 'bilinear', not 'nearest'"),
        ("learned(interpolation=bilinear)", "write interpolation='bilinear' with quotes"),
        ("learned(std=1+__import__('os').getpid())", "not a value"),
        ("learned(std=1.0, std=2.0)", "given twice"),
        ("learned(std={[]: 1})", "not a value"),
        ("learned(std=1e400)", "got 1e309, which is not a value; write a plain, finite value"),
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

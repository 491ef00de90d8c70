"""Entries of the leaderboard: what is stored, and what is refused with one line."""

import json
from dataclasses import replace

import pytest

from tests.leaderboard.entries import PROTOCOL, made
from vitpos.errors import InputError
from vitpos.leaderboard.entry import join_seeds, load_entry
from vitpos.leaderboard.entry_checks import digest


def rewritten(path, change):
    """The entry with a change made by hand."""
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    return path


def test_an_entry_survives_its_file(tmp_path):
    entry = made("learned + rope(base=10.0)", seeds=(0, 1, 2, 10))
    path = entry.save(tmp_path)
    assert path.name.startswith("learned-rope-base-10.0-") and load_entry(path) == entry
    assert made("rope").file_name == "rope.json"
    assert replace(made("rope"), encoding="rope(base=-1.0)").file_name != made("rope(base=1.0)").file_name


def test_entries_of_equal_content_are_equal_files(tmp_path):
    first = made("rope").save(tmp_path).read_bytes()
    assert made("rope").save(tmp_path).read_bytes() == first


def test_a_column_that_does_not_apply_has_a_reason(tmp_path):
    entry = made("rope")
    numbers = {key: values for key, values in entry.numbers.items() if key != "pixels"}
    without = replace(entry, numbers=numbers, reasons={"pixels": "no closed form"})
    assert load_entry(without.save(tmp_path)) == without
    with pytest.raises(InputError, match="'pixels' of seed 0 is missing"):
        load_entry(replace(without, reasons={}).save(tmp_path))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"numbers": {"accuracy": {0: 1.7}}}, "'accuracy' of seed 0 is 1.7"),
        ({"numbers": {"accuracy": {0: float("nan")}}}, "'accuracy' of seed 0 is nan"),
        ({"numbers": {"parameters": {0: 0.5}}}, "'parameters' of seed 0 is 0.5"),
        ({"numbers": {"acuracy": {0: 0.5}}}, "no column 'acuracy'"),
        ({"protocol": "vitpos-2"}, "no protocol 'vitpos-2'"),
        ({"protocol_sha256": "0" * 64}, "another version of the protocol"),
        ({"family": "rotation"}, "no family 'rotation'"),
        ({"maps": {"x": [[1.0]]}}, "'maps'"),
    ],
)
def test_numbers_and_names_out_of_range_are_refused(tmp_path, change, words):
    entry = made("rope", seeds=(0,))
    if "numbers" in change:
        change = {"numbers": {**entry.numbers, **change["numbers"]}}
    with pytest.raises(InputError, match="is not a valid entry") as error:
        load_entry(replace(entry, **change).save(tmp_path))
    assert words in str(error.value) and "\n" not in str(error.value)


def test_a_seed_without_all_its_numbers_is_refused(tmp_path):
    entry = made("rope")
    numbers = {**entry.numbers, "corruption": {0: 0.4, 1: 0.4}}
    with pytest.raises(InputError, match="'corruption' of seed 2 is missing"):
        load_entry(replace(entry, numbers=numbers).save(tmp_path))
    with pytest.raises(InputError, match="no numbers"):
        load_entry(replace(entry, numbers={}).save(tmp_path))


def test_the_file_of_further_seeds_has_another_name():
    assert made("rope", seeds=(0,)).file_name == "rope.json"
    assert made("rope", seeds=(1, 2)).file_name == "rope-seeds-1-2.json"


def test_seeds_of_two_machines_are_joined():
    one, other = made("alibi", seeds=(0,)), made("alibi", seeds=(1, 2))
    other = replace(other, machine={"processor": "another"}, commit="b" * 40)
    joined = join_seeds(replace(one, commit="a" * 40), other)
    assert joined.seeds == [0, 1, 2]
    assert joined.numbers["accuracy"] == {**one.numbers["accuracy"], **other.numbers["accuracy"]}
    assert joined.machine == {"processor": "made up, another"} and joined.commit == f"{'a' * 40}, {'b' * 40}"


def test_a_seed_in_two_entries_and_seeds_of_different_code_are_refused():
    one = made("alibi", seeds=(0, 1))
    with pytest.raises(InputError, match="have seed 1; keep one"):
        join_seeds(one, made("alibi", seeds=(1, 2)))
    changed = replace(made("alibi", seeds=(2,)), training_losses={**one.training_losses, "alibi": 2.2})
    with pytest.raises(InputError, match="different code"):
        join_seeds(one, changed)


def test_an_entry_of_a_package_that_trains_differently_is_refused(tmp_path):
    losses = {name: loss + 0.01 for name, loss in PROTOCOL.training_losses.items()}
    with pytest.raises(InputError, match="trains differently"):
        load_entry(replace(made("rope"), training_losses=losses).save(tmp_path))


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content["numbers"]["accuracy"].update({"0": 0.99}),
        lambda content: content.update(encoding="mine"),
        lambda content: content["machine"].update(processor="another"),
    ],
)
def test_a_falsified_entry_is_refused(tmp_path, change):
    path = made("rope").save(tmp_path)
    with pytest.raises(InputError, match="digest"):
        load_entry(rewritten(path, change))


def forged(path, change):
    """The entry with a change made by hand and a new digest."""
    content = json.loads(path.read_text())
    change(content)
    content["digest"] = digest(content)
    path.write_text(json.dumps(content))
    return path


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda c: c["numbers"]["accuracy"].update({"0": "0.99"}), "is not a number"),
        (lambda c: c["numbers"]["accuracy"].update({"0": True}), "is not a number"),
        (lambda c: c["numbers"]["parameters"].update({"0": 10**400}), "is not a finite number"),
        (lambda c: c["numbers"]["time"].update({"0": 0}), "is not above 0"),
        (lambda c: [by.update({"-1": 0.5}) for by in c["numbers"].values()], "'-1' is not a seed"),
        (lambda c: [by.update({"00": 0.5}) for by in c["numbers"].values()], "'00' is not a seed"),
        (lambda c: [by.update({"1": by["0"]}) for by in c["numbers"].values()], "the same numbers as another seed"),
        (lambda c: c.update(encoding=""), "not the spec of an encoding"),
        (lambda c: c.update(encoding="rope\n| 1 | best"), "unprintable"),
        (lambda c: c["machine"].update(processor="\x1b[31mred"), "unprintable"),
        (lambda c: c.update(code={}), "'code'"),
        (lambda c: c.update(family="added"), "family 'rotary'"),
        (lambda c: c["training_losses"].update(rope="2"), "not a finite number"),
        (lambda c: c.update(maps={"x": [[[float("nan")]]]}), "'maps'"),
    ],
)
def test_values_of_the_wrong_kind_are_refused_whatever_the_digest(tmp_path, change, words):
    with pytest.raises(InputError, match="is not a valid entry") as error:
        load_entry(forged(made("rope").save(tmp_path), change))
    assert words in str(error.value) and "\n" not in str(error.value) and str(error.value).isprintable()


def test_an_encoding_must_have_its_canonical_spec_and_its_own_loss(tmp_path):
    entry = made("rope(base=10.0)")
    with pytest.raises(InputError, match=r"canonical form 'rope\(base=10.0\)'"):
        losses = {**entry.training_losses, "rope(base=10)": 2.18}
        load_entry(replace(entry, encoding="rope(base=10)", training_losses=losses).save(tmp_path))
    with pytest.raises(InputError, match="'training_losses' lacks"):
        load_entry(replace(entry, training_losses=PROTOCOL.training_losses).save(tmp_path))


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content.pop("numbers"),
        lambda content: content.update(numbers=[1]),
        lambda content: content.update(extra=1),
        lambda content: content.update(format=2),
        lambda content: content.update(quick="no"),
        lambda content: content["code"].update(rope=1),
    ],
)
def test_another_schema_is_refused(tmp_path, change):
    path = made("rope").save(tmp_path)
    with pytest.raises(InputError, match="is not a valid entry"):
        load_entry(rewritten(path, change))


@pytest.mark.parametrize("content", ["", "[]", "{", "[" * 100_000, '{"format": 1}', "x" * 2_000_000])
def test_a_file_that_is_no_entry_is_refused(tmp_path, content):
    path = tmp_path / "entry.json"
    path.write_text(content)
    with pytest.raises(InputError, match="is not a valid entry"):
        load_entry(path)


def test_the_protocol_is_frozen():
    assert PROTOCOL.sha256 == "a0cd8e1c21a823bcc9f1acfebaa092acd4a651b51dc6170bf671b2c457800193"
    assert PROTOCOL.seeds == (0, 1, 2) and set(PROTOCOL.learning_rates) == {"added", "bias", "rotary", "context"}

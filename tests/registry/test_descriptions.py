"""Descriptions read from the source agree with the objects."""

from dataclasses import dataclass
from typing import Annotated, Any

import pytest

from vitpos.cli.descriptions import REGISTRIES
from vitpos.evaluations import ATTACKS
from vitpos.registry import matches_type
from vitpos.registry.descriptions import describe_object


@pytest.mark.parametrize("kind", REGISTRIES)
def test_what_the_source_says_is_what_the_object_takes(kind):
    registry = REGISTRIES[kind]
    for name in registry:
        entry, thing = registry.describe(name), describe_object(name, registry[name], registry.positional)
        assert entry.options == thing.options and not thing.open and entry.arguments == thing.arguments
        assert {key: thing.attributes[key] for key in entry.attributes} == entry.attributes
        assert entry.summary, f"{name} has no docstring"
        assert all(matches_type(option.type, option.default) for option in entry.options.values())


@dataclass
class Settings:
    """Settings.

    Args:
        model: Not an option.
        first: The first.
        second: The second.
    """

    model: object
    first: int = 1
    second: float = 0.5


def passing_on(model, *, own: str = "a", second: float = 2.0, **settings: Annotated[Any, Settings]):
    """Has the options of a class.

    Args:
        own: Its own.
        second: Another default.
    """


def test_a_function_has_the_options_of_the_class_that_it_passes_them_on_to():
    found = describe_object("passing_on", passing_on, 1)
    assert {key: option.default for key, option in found.options.items()} == {"first": 1, "second": 2.0, "own": "a"}
    assert found.arguments == {"own": "Its own.", "second": "Another default.", "first": "The first."}
    assert found.prose == "Has the options of a class." and not found.open


@pytest.mark.parametrize("name", ATTACKS)
def test_every_option_of_an_attack_has_a_text(name):
    described = ATTACKS.describe(name)
    assert set(described.arguments) == set(described.options) >= {"images", "scenario", "defense", "attacker"}


def test_an_annotation_that_cannot_be_evaluated_leaves_the_other_options_checked():
    def made(geometry: "Geometry", *, sigma: "float" = 1.0, mode: "Unknown" = None):  # noqa: F821 - as under TYPE_CHECKING
        pass

    options = describe_object("made", made, 1).options
    assert options["sigma"].type is float and str(options["mode"]) == "Unknown"

"""Descriptions read from the source agree with the objects."""

import pytest

from vitpos.cli.descriptions import REGISTRIES
from vitpos.registry import matches_type
from vitpos.registry.descriptions import describe_object


@pytest.mark.parametrize("kind", REGISTRIES)
def test_what_the_source_says_is_what_the_object_takes(kind):
    registry = REGISTRIES[kind]
    for name in registry:
        entry, thing = registry.describe(name), describe_object(name, registry[name], registry.positional)
        assert entry.options == thing.options and not thing.open
        assert {key: thing.attributes[key] for key in entry.attributes} == entry.attributes
        assert entry.summary, f"{name} has no docstring"
        assert all(matches_type(option.type, option.default) for option in entry.options.values())

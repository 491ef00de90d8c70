"""Registries of names, and specs: texts such as ``learned + rope(base=10)`` from which a registry builds objects."""

from vitpos.registry.option_types import matches_type
from vitpos.registry.registry import Registry
from vitpos.registry.specs import Term
from vitpos.registry.suggestions import suggest

__all__ = ["Registry", "Term", "matches_type", "suggest"]

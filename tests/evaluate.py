"""Evaluations of a model by their specs."""

from vitpos.evaluations import EVALUATIONS
from vitpos.evaluations.context import EvalContext
from vitpos.training.recipe import Recipe


def evaluate(spec, model, data, recipe=None):
    """The result of one evaluation, in a context of its own."""
    return EVALUATIONS.build(spec, EvalContext(model, data, recipe or Recipe()))


def numbers_of(spec, model, data):
    """Its numbers alone."""
    return evaluate(spec, model, data).numbers

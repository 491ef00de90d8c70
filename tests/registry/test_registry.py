"""Encodings and evaluations are registered with a decorator."""

import pytest

from vitpos.encodings import ENCODINGS, register_encoding
from vitpos.encodings.base import PositionEncoding
from vitpos.encodings.learned import Learned
from vitpos.errors import InputError
from vitpos.evaluations import EVALUATIONS
from vitpos.evaluations.result import Result

pytestmark = pytest.mark.usefixtures("forgetting")


class Nothing(PositionEncoding):
    """Does nothing."""

    traits = ("permutation_invariant", "grid_shape_invariant", "translation_invariant")

    def __init__(self, geometry, *, scale: float = 1.0):
        super().__init__()


def test_a_decorator_registers_and_registers_again_what_is_the_same():
    for _ in range(2):
        register_encoding("nothing_registered")(Nothing)
    assert ENCODINGS["nothing_registered"] is Nothing and "nothing_registered" in list(ENCODINGS)
    assert ENCODINGS.canonical("nothing_registered(scale=2)") == "nothing_registered(scale=2.0)"
    with pytest.raises(
        InputError, match=r"is registered by Nothing of .*test_registry.py already; choose another name"
    ):
        register_encoding("nothing_registered")(Learned)


def test_a_registered_evaluation_is_known_wherever_evaluations_are():
    @EVALUATIONS.register("always_one")
    def always_one(ctx, *, times: int = 1):
        return Result({"one": 1.0 * times})

    assert EVALUATIONS.build("always_one(times=2)", None) == Result({"one": 2.0})


def test_an_evaluation_that_returns_no_result_is_one_line():
    EVALUATIONS.register("bare_numbers")(lambda ctx: {"one": 1.0})
    with pytest.raises(
        InputError, match=r"'bare_numbers' makes a dict; it has to make a vitpos.evaluations.result.Result"
    ):
        EVALUATIONS.build("bare_numbers", None)

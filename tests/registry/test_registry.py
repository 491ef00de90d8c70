"""Encodings and evaluations are registered with a decorator."""

from functools import partial

import pytest
import torch
from torch import nn

from vitpos.encodings import ENCODINGS, register_encoding
from vitpos.encodings.base import Geometry, PositionEncoding
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


GEOMETRY = Geometry(8, 1, 1, (2, 2))


def test_a_partial_of_a_class_is_a_spec_with_options():
    register_encoding("nothing_registered")(Nothing)
    factory = partial(Nothing, scale=2)
    assert ENCODINGS.spec_of(factory) == "nothing_registered(scale=2)"
    assert isinstance(ENCODINGS.build(factory, GEOMETRY), Nothing)
    assert ENCODINGS.describe(factory).traits == Nothing.traits


@pytest.mark.parametrize(
    ("thing", "message"),
    [
        (lambda geometry: Nothing(geometry), "encoding <lambda> cannot be stored with a run; define it with def"),
        (partial(Nothing, scale=torch.ones(2)), "option 'scale' of type Tensor cannot be stored"),
        (partial(Nothing, GEOMETRY), "encoding of type partial cannot be stored with a run; give the class"),
        (nn.Sequential(nn.Linear(1, 1)), "encoding of type Sequential cannot be stored"),
        (None, "encoding of type NoneType cannot be stored"),
    ],
)
def test_what_cannot_be_written_as_a_spec_is_refused_in_one_line(thing, message):
    with pytest.raises(InputError, match=message) as error:
        ENCODINGS.spec_of(thing)
    assert "\n" not in str(error.value)


def test_an_instance_the_base_class_and_other_classes_are_refused_as_specs_in_one_line(tmp_path):
    (tmp_path / "mine.py").write_text("import vitpos\ninstance = vitpos.Learned(vitpos.Geometry(8, 1, 1, (2, 2)))\n")
    base = "vitpos.encodings.base.PositionEncoding"
    for spec, message in (
        (f"{tmp_path}/mine.py:instance", "is an object of type Learned, not a class or function; give a class"),
        ("vitpos.encodings.base:PositionEncoding", f"is the base class itself; give a subclass of {base}"),
        ("vitpos.models.vit:ViT", f"is no subclass of {base}; give a subclass"),
    ):
        with pytest.raises(InputError, match=message):
            ENCODINGS.parse(spec)
    with pytest.raises(InputError, match="is the base class itself"):
        ENCODINGS.build(PositionEncoding, GEOMETRY)


def test_a_decorator_without_a_name_gets_the_remedy():
    with pytest.raises(InputError, match="no name is given for an entry of kind 'encoding'; add one"):
        register_encoding(Nothing)

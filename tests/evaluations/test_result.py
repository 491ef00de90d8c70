"""A result holds only what a run can store."""

import numpy as np
import pytest
import torch

from vitpos.errors import InputError
from vitpos.evaluations.result import Result


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"numbers": {"a": "high"}}, r"numbers\['a'\] = 'high'; give a number"),
        ({"numbers": {"a": torch.zeros(2)}}, r"numbers\['a'\] = tensor\(\[0., 0.\]\); give a number"),
        ({"numbers": {"a": np.complex64(1)}}, "give a number"),
        ({"numbers": {"a": None}}, "give a number"),
        ({"numbers": {1: 0.5}}, "give a dictionary with texts as keys"),
        ({"numbers": 0.5}, "numbers=0.5; give a dictionary"),
        ({"curves": {"a": {"small": 0.5}}}, r"a key of curves\['a'\] = 'small'; give a number"),
        ({"curves": {"a": {1.0: "x"}}}, r"curves\['a'\]\[1.0\] = 'x'; give a number"),
        ({"curves": {"a": [0.5]}}, r"curves\['a'\] = \[0.5\]; give a dictionary x → value"),
        ({"arrays": {"a": np.zeros(2)}}, r"arrays\['a'\] = array\(\[0., 0.\]\); give a tensor"),
        ({"images": {"a": [1]}}, r"images\['a'\] = \[1\]; give a tensor"),
    ],
)
def test_what_cannot_be_stored_is_refused_in_one_line(fields, message):
    with pytest.raises(InputError, match=message) as error:
        Result(**fields)
    assert "\n" not in str(error.value)

"""Every model has the tensors that it had before the redesign, by today's names."""

import pytest
import torch

from tests.golden import adapter
from tests.golden.cases import CASES
from tests.golden.stored import shapes_of


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_state_dict_has_the_names_and_shapes_of_before(case):
    found = {name: tuple(x.shape) for name, x in adapter.build_case(case).state_dict().items()}
    expected = adapter.state_from({name: torch.empty(shape) for name, shape in shapes_of(case).items()})
    assert found == {name: tuple(x.shape) for name, x in expected.items()}

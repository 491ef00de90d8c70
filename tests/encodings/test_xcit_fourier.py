"""XCiT's Fourier positions are timm's on the training grid."""

import pytest
import torch

from tests.encodings.builders import DIM, GRID, build
from tests.references import peer
from vitpos.encodings import ENCODINGS
from vitpos.encodings.base import Geometry
from vitpos.errors import InputError
from vitpos.positions import Positions
from vitpos.testing import check_encoding


@pytest.mark.parametrize(("hidden", "temperature"), [(32, 10_000.0), (6, 20.0)])
def test_vectors_agree_with_timm(hidden, temperature):
    theirs = peer("timm.models.xcit").PositionalEncodingFourier(hidden_dim=hidden, dim=DIM, temperature=temperature)
    encoding = build(f"xcit_fourier(hidden_dim={hidden}, temperature={temperature})", dtype=torch.float32)
    with torch.no_grad():
        theirs.token_projection.weight.copy_(encoding.projection.weight[..., None, None])
        theirs.token_projection.bias.copy_(encoding.projection.bias)
    ours = encoding.vectors(Positions.from_grid(GRID), 0, torch.float32)[0]
    assert (ours - theirs(1, *GRID)[0].flatten(1).mT).abs().max() < 1e-5


def test_a_finer_grid_reads_between_the_cells():
    encoding, pos = build("xcit_fourier"), Positions.from_grid((9, 15), train_grid=GRID)
    middle = encoding.vectors(pos, 0, torch.float64)[0].unflatten(0, (9, 15))[1::3, 1::3].flatten(0, 1)
    assert torch.allclose(middle, encoding.vectors(Positions.from_grid(GRID), 0, torch.float64)[0], atol=1e-5)


def test_the_options_keep_the_contract():
    check_encoding("xcit_fourier", hidden_dim=4, temperature=20.0)


def test_an_odd_number_of_features_is_refused():
    with pytest.raises(InputError, match="hidden_dim=5; choose an even number"):
        ENCODINGS.build("xcit_fourier(hidden_dim=5)", Geometry(32, 2, 1, GRID))

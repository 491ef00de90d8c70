"""The decomposed bias is its formula."""

from tests.encodings.inputs import CELLS, GRID, build, queries_and_keys
from vitpos.positions import Positions


def test_decomposed_bias_is_its_formula():
    encoding = build("decomposed")
    q, k = queries_and_keys()
    bias = encoding.bias(q, k, Positions.from_grid(GRID), 1)
    for i, a in enumerate(CELLS):
        for j, b in enumerate(CELLS):
            vector = encoding.rows[1, a[0] - b[0] + 2] + encoding.columns[1, a[1] - b[1] + 4]
            assert (bias[:, :, i, j] - q[:, :, i] @ vector).abs().max() < 1e-6

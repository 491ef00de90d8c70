"""The baseline without positions."""

from vitpos.encodings.base import Geometry, PositionEncoding


class NoPosition(PositionEncoding):
    """No position encoding: the model sees an unordered set of patches. CLS and register tokens are unaffected."""

    paper = "baseline"
    traits = ("permutation_invariant", "grid_shape_invariant", "translation_invariant")

    def __init__(self, geometry: Geometry):
        super().__init__()

"""The baseline without position."""

from vitpos.encodings.base import Geometry, PositionEncoding


class NoPosition(PositionEncoding):
    """No position at all: the model sees a bag of patches, whatever else it has (CLS and registers stay)."""

    paper = "the control"
    traits = ("permutation-blind", "grid-blind", "relative")

    def __init__(self, geometry: Geometry):
        super().__init__()

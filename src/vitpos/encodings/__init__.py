"""What a model can do with the places of its tokens: one file per encoding, one line here."""

from vitpos.catalog import Catalog

ENCODINGS = Catalog(
    "encoding",
    {
        "none": "vitpos.encodings.none:NoPosition",
        "learned": "vitpos.encodings.learned:Learned",
        "sinusoidal": "vitpos.encodings.sinusoidal:Sinusoidal",
    },
)

"""What a model can do with the places of its tokens: one file per encoding, one line here."""

from vitpos.registry import Registry

ENCODINGS = Registry(
    "encoding",
    {
        "none": "vitpos.encodings.none:NoPosition",
        "learned": "vitpos.encodings.learned:Learned",
        "factorized": "vitpos.encodings.factorized:Factorized",
        "sinusoidal1d": "vitpos.encodings.sinusoidal1d:Sinusoidal1d",
        "sinusoidal": "vitpos.encodings.sinusoidal:Sinusoidal",
        "fourier": "vitpos.encodings.fourier:Fourier",
        "coordinates": "vitpos.encodings.coordinates:Coordinates",
        "cpe": "vitpos.encodings.cpe:CPE",
        "relative": "vitpos.encodings.relative:Relative",
        "decomposed": "vitpos.encodings.decomposed:Decomposed",
        "cpb": "vitpos.encodings.cpb:CPB",
        "irpe": "vitpos.encodings.irpe:IRPE",
        "alibi": "vitpos.encodings.alibi:Alibi",
        "lookhere": "vitpos.encodings.lookhere:LookHere",
        "cope": "vitpos.encodings.cope:CoPE",
        "sape2": "vitpos.encodings.sape2:SaPE2",
        "rope": "vitpos.encodings.rope:Rope",
        "rope_mixed": "vitpos.encodings.rope_mixed:RopeMixed",
        "rope_dino": "vitpos.encodings.rope_dino:RopeDino",
        "liere": "vitpos.encodings.liere:LieRE",
        "mjp": "vitpos.encodings.mjp:MJP",
    },
    sums=True,
    positional=1,
    group="vitpos.encodings",
    base="vitpos.encodings.base:PositionEncoding",
)
register_encoding = ENCODINGS.register

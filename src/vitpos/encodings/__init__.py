"""The registry of position encodings: one file per encoding, one line here."""

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
        "coordinate_mlp": "vitpos.encodings.coordinate_mlp:CoordinateMLP",
        "xcit_fourier": "vitpos.encodings.xcit_fourier:XCiTFourier",
        "coordconv": "vitpos.encodings.coordconv:CoordConv",
        "cape": "vitpos.encodings.cape:CAPE",
        "cpe": "vitpos.encodings.cpe:CPE",
        "relative": "vitpos.encodings.relative:RelativeBias",
        "decomposed": "vitpos.encodings.decomposed:DecomposedBias",
        "cpb": "vitpos.encodings.cpb:CPB",
        "irpe": "vitpos.encodings.irpe:IRPE",
        "shaw": "vitpos.encodings.shaw:Shaw",
        "alibi": "vitpos.encodings.alibi:ALiBi",
        "lookhere": "vitpos.encodings.lookhere:LookHere",
        "fire": "vitpos.encodings.fire:FIRE",
        "pape": "vitpos.encodings.pape:PaPE",
        "gpsa": "vitpos.encodings.gpsa:GPSA",
        "cope": "vitpos.encodings.cope:CoPE",
        "sape2": "vitpos.encodings.sape2:SaPE2",
        "rope": "vitpos.encodings.rope:RoPE",
        "rope_mixed": "vitpos.encodings.rope_mixed:RoPEMixed",
        "rope_dino": "vitpos.encodings.rope_dino:RoPEDINO",
        "liere": "vitpos.encodings.liere:LieRE",
        "mjp": "vitpos.encodings.mjp:MJP",
    },
    sums=True,
    positional=1,
    group="vitpos.encodings",
    base="vitpos.encodings.base:PositionEncoding",
)
register_encoding = ENCODINGS.register

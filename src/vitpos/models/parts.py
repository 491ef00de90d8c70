"""Registries of the parts of a `ViT` that have nothing to do with positions: stems, blocks, MLPs, final norms and heads.

The defaults are the ViT of Dosovitskiy et al. The other parts are those of published models, so that `vitpos.load` can
rebuild them: ``ViT(…, stem="norm(eps=1e-05)", block="pre_norm(mlp='quick_gelu', eps=1e-05)")`` is CLIP's image tower.
"""

from vitpos.registry import Registry

STEMS = Registry(
    "stem",
    {"plain": "vitpos.models.norms:PlainStem", "norm": "vitpos.models.norms:NormStem"},
    positional=1,
)
BLOCKS = Registry("block", {"pre_norm": "vitpos.models.vit:Block"}, positional=5)
MLPS = Registry(
    "MLP",
    {
        "gelu": "vitpos.models.mlps:gelu",
        "gelu_tanh": "vitpos.models.mlps:gelu_tanh",
        "quick_gelu": "vitpos.models.mlps:quick_gelu",
        "swiglu": "vitpos.models.mlps:SwiGLU",
    },
    positional=2,
)
NORMS = Registry(
    "norm",
    {
        "tokens": "vitpos.models.norms:TokenNorm",
        "features": "vitpos.models.norms:FeatureNorm",
        "none": "vitpos.models.norms:NoNorm",
    },
    positional=1,
)
HEADS = Registry(
    "head",
    {
        "linear": "vitpos.models.heads:LinearHead",
        "none": "vitpos.models.heads:NoHead",
        "tanh": "vitpos.models.heads:TanhHead",
        "cls_and_mean": "vitpos.models.heads:CLSAndMeanHead",
        "distilled": "vitpos.models.heads:DistilledHead",
        "attention": "vitpos.models.heads:AttentionHead",
    },
    positional=2,
)

"""Image classifiers: one file each, one line here. Each is built as ``Model(image, classes, encoding, **options)``."""

from vitpos.catalog import Catalog

MODELS = Catalog(
    "model",
    {
        "attention": "vitpos.models.attention:Attention",
        "vit": "vitpos.models.vit:ViT",
        "cnn": "vitpos.models.cnn:CNN",
    },
)

"""Image classifiers: one file each, one line here. Each is built as ``Model(image, classes, encoding, **options)``."""

from vitpos.catalog import Catalog

MODELS = Catalog(
    "model",
    {
        "attention": "vitpos.models.minimal:Attention",
        "vit": "vitpos.models.vit:ViT",
        "swin": "vitpos.models.swin:Swin",
        "cnn": "vitpos.models.cnn:CNN",
        "resnet": "vitpos.models.resnet:ResNet",
    },
)

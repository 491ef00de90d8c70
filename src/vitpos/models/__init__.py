"""The registry of image classifiers, each built as ``Model(image_shape, num_classes, encoding, **options)``."""

from vitpos.catalog import Catalog

MODELS = Catalog(
    "model",
    {
        "minimal": "vitpos.models.minimal:MinimalAttention",
        "vit": "vitpos.models.vit:ViT",
        "swin": "vitpos.models.swin:Swin",
        "cnn": "vitpos.models.cnn:CNN",
        "resnet": "vitpos.models.resnet:ResNet",
    },
)

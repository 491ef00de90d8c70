"""The registry of image classifiers, each built as ``Model(image_shape, num_classes, encoding, **options)``."""

from vitpos.registry import Registry

MODELS = Registry(
    "model",
    {
        "minimal": "vitpos.models.minimal:MinimalAttention",
        "vit": "vitpos.models.vit:ViT",
        "swin": "vitpos.models.swin:Swin",
        "cnn": "vitpos.models.cnn:CNN",
        "resnet": "vitpos.models.resnet:ResNet",
    },
    positional=3,
    group="vitpos.models",
    base="vitpos.models.base:Classifier",
)
register_model = MODELS.register

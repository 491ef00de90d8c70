"""Image classifiers: one file each, one line here. Each is built as ``Model(image, classes, encoding, **options)``."""

from vitpos.registry import Registry

MODELS = Registry(
    "model",
    {
        "attention": "vitpos.models.attention:Attention",
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

"""What a shared gradient gives away: attacks, ``(model, data, **options) -> Recovery``."""

from vitpos.registry import Registry

ATTACKS = Registry(
    "attack",
    {
        "projection": "vitpos.attacks.projection:projection",
        "april": "vitpos.attacks.april:april",
        "matching": "vitpos.attacks.matching:matching",
    },
    positional=2,
)

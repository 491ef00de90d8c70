"""What a shared gradient gives away: attacks, ``(model, data, **options) -> Recovery``."""

from vitpos.catalog import Catalog

ATTACKS = Catalog(
    "attack",
    {
        "projection": "vitpos.attacks.projection:projection",
        "april": "vitpos.attacks.april:april",
        "matching": "vitpos.attacks.matching:matching",
    },
)

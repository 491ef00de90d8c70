"""Suggestions for names that do not exist: case, synonyms from other libraries, then spelling."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

SYNONYMS: dict[str, tuple[str, ...]] = {  # names used elsewhere → ours, the first that exists is suggested
    "learning_rate": ("lr",),
    "lr_max": ("lr",),
    "peak_lr": ("lr",),
    "weight_decay": ("decay",),
    "wd": ("decay",),
    "label_smoothing": ("smoothing",),
    "grad_clip": ("clip",),
    "clip_grad": ("clip",),
    "grad_accum": ("pieces",),
    "batch_size": ("batch",),
    "num_epochs": ("epochs",),
    "patch_size": ("patch",),
    "embed_dim": ("dim",),
    "hidden_size": ("dim",),
    "width": ("dim",),
    "num_heads": ("heads",),
    "num_layers": ("depth",),
    "layers": ("depth",),
    "mlp_ratio": ("mlp",),
    "reg_tokens": ("registers",),
    "window_size": ("window",),
    "theta": ("base",),
    "rope_theta": ("base",),
    "temperature": ("base", "temperature"),
    "base": ("temperature",),
    "sigma": ("std",),
    "imagenet": ("folder",),
    "imagefolder": ("folder",),
    "image_folder": ("folder",),
    "fashion_mnist": ("fashion_mnist",),
    "fashionmnist": ("fashion_mnist",),
    "cifar": ("cifar10",),
    "absolute": ("learned",),
    "ape": ("learned",),
    "pos_embed": ("learned",),
    "sincos": ("sinusoidal",),
    "sincos2d": ("sinusoidal",),
    "rpb": ("relative",),
    "rpe": ("relative", "irpe"),
    "relative_position_bias": ("relative",),
    "rotary": ("rope",),
    "rope2d": ("rope",),
    "axial_rope": ("rope",),
    "swinv2": ("cpb",),
    "peg": ("cpe",),
    "nope": ("none",),
    "no_position": ("none",),
    "transformer": ("vit",),
    "deit": ("vit",),
    "cutout": ("erase",),
    "random_erasing": ("erase",),
    "mixup": ("mix",),
    "cutmix": ("mix",),
    "color_jitter": ("jitter",),
    "horizontal_flip": ("flip",),
    "dp_sgd": ("noise",),
    "top1": ("accuracy",),
    "acc": ("accuracy",),
}


def suggest(name: str, known: Iterable[str]) -> str:
    """The remedy for a name that does not exist: the name that was probably meant, or all there are."""
    names = sorted(known)
    meant = _meant(name, names)
    if meant:
        return f"did you mean {meant!r}?"
    return f"there is {', '.join(names)}" if names else "it takes none"


def _meant(name: str, names: list[str]) -> str | None:
    """The same name in another case or with dashes, a synonym, or the nearest spelling; dotted names by their last part."""
    plain = name.lower().replace("-", "_")
    group, _, last = plain.rpartition(".")
    folded = {one.lower(): one for one in names}
    exact = [folded[plain]] if plain in folded else []
    wanted = [one for other in SYNONYMS.get(last, ()) for one in (f"{group}.{other}" if group else other,)]
    synonyms = [one for other in wanted for one in names if one == other or (not group and one.endswith(f".{other}"))]
    near = [folded[one] for one in difflib.get_close_matches(plain, folded, 1)]
    return next(iter([*exact, *synonyms, *near]), None)

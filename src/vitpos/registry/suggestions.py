"""Suggestions for names that do not exist: case, synonyms from other libraries, then spelling."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

SYNONYMS: dict[str, tuple[str, ...]] = {  # names used elsewhere → ours, the first that exists is suggested
    "learning_rate": ("lr",),
    "lr_max": ("lr",),
    "peak_lr": ("lr",),
    "min_lr": ("lr_end",),
    "warmup": ("warmup_fraction",),
    "warmup_epochs": ("warmup_fraction",),
    "decay": ("weight_decay",),
    "wd": ("weight_decay",),
    "smoothing": ("label_smoothing",),
    "clip": ("grad_clip",),
    "clip_grad": ("grad_clip",),
    "max_grad_norm": ("grad_clip",),
    "accum_iter": ("grad_accum",),
    "gradient_accumulation_steps": ("grad_accum",),
    "batch": ("batch_size",),
    "num_epochs": ("epochs",),
    "patch_size": ("patch",),
    "embed_dim": ("dim",),
    "hidden_size": ("dim", "hidden_dim"),
    "width": ("dim",),
    "num_heads": ("heads",),
    "num_layers": ("depth",),
    "layers": ("depth",),
    "mlp": ("mlp_ratio",),
    "mlp_dim": ("mlp_ratio",),
    "drop_path_rate": ("drop_path",),
    "stochastic_depth": ("drop_path",),
    "reg_tokens": ("registers",),
    "window_size": ("window",),
    "cosine": ("qk_norm",),
    "theta": ("base",),
    "rope_theta": ("base",),
    "temperature": ("base",),
    "base": ("temperature",),
    "sigma": ("std",),
    "imagenet": ("image_folder",),
    "imagefolder": ("image_folder",),
    "folder": ("image_folder",),
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
    "golden_gate": ("rope_golden",),
    "golden": ("rope_golden",),
    "spiral": ("rope_spiral",),
    "spherical": ("rope_spherical",),
    "polar": ("pope",),
    "cayley": ("string",),
    "cayley_string": ("string",),
    "commuting_rope": ("comrope",),
    "attention_prior": ("goat",),
    "swinv2": ("cpb",),
    "peg": ("cpe",),
    "convit": ("gpsa",),
    "gated_positional": ("gpsa",),
    "parabolic": ("pape",),
    "pape_ri": ("pape",),
    "xcit": ("xcit_fourier",),
    "coord_conv": ("coordconv",),
    "coordinates": ("coordconv", "coordinate_mlp"),
    "relative_vectors": ("shaw",),
    "rpr": ("shaw",),
    "rpe_on": ("on",),
    "num_parabolas": ("parabolas",),
    "local_up_to_layer": ("layers",),
    "max_global_shift": ("global_shift",),
    "max_local_shift": ("local_shift",),
    "max_global_scaling": ("global_scale",),
    "nope": ("none",),
    "no_position": ("none",),
    "transformer": ("vit",),
    "deit": ("vit",),
    "cutout": ("erase",),
    "random_erasing": ("erase",),
    "mixup": ("mix",),
    "cutmix": ("mix",),
    "jitter": ("color_jitter",),
    "horizontal_flip": ("flip",),
    "dp_sgd": ("noise",),
    "top1": ("accuracy",),
    "acc": ("accuracy",),
}


def suggest(name: str, known: Iterable[str]) -> str:
    """Returns the end of an error message about an unknown name: ``did you mean 'rope'?`` or a list of all known names."""
    names = sorted(known)
    meant = _meant(name, names)
    if meant:
        return f"did you mean {meant!r}?"
    return f"available: {', '.join(names)}" if names else "there are none"


def _meant(name: str, names: list[str]) -> str | None:
    """Returns the known name that was probably meant, or None.

    Tries other case or dashes, then synonyms from other libraries (``learning_rate`` → ``lr``), then similar spelling.
    Dotted names such as ``train.learning_rate`` are looked up by their last part.
    """
    plain = name.lower().replace("-", "_")
    group, _, last = plain.rpartition(".")
    folded = {one.lower(): one for one in names}
    exact = [folded[plain]] if plain in folded else []
    wanted = [one for other in SYNONYMS.get(last, ()) for one in (f"{group}.{other}" if group else other,)]
    synonyms = [one for other in wanted for one in names if one == other or (not group and one.endswith(f".{other}"))]
    near = [folded[one] for one in difflib.get_close_matches(plain, folded, 1)]
    return next(iter([*exact, *synonyms, *near]), None)

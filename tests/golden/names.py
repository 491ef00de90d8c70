"""Names of the time before the redesign, mapped to those of today: the one file to edit when something is renamed.

Stored values, cases and experiments keep the old names forever. Every golden test translates them here, old to new.
Each table is a list of ``(pattern, replacement)`` for ``re.sub``, applied in order to the whole old name; an empty list
leaves all names as they were. How to fill them, by example::

    SPECS["encoding"] = [
        (r"\\bbetween=", "interpolation="),                          # learned(between='bilinear')
        (r"\\bcpb\\(cosine=False\\)", "cpb"),                          # one case alone: match all of it
        (r"(rope\\w*\\(.*?)prefix='centre'", r"\\1prefix_mode='center'"),  # an option of some encodings only
    ]
    SPECS["model"] = [(r"^attention\\b", "minimal"), (r"\\bmlp=", "mlp_ratio=")]
    MODEL_OPTIONS = [(r"\\bcpb\\b(?!\\(cosine=False\\))", "qk_norm='cosine'")]  # what moved from the encoding to the model
    PARAMETERS = [(r"^encoding\\.rows$", "encoding.prefix_table")]
    METRICS = [                                                     # evaluation, metric -> metric, x
        (r"^jigsaw", r"^agreement$", "consistency", ""),
        (r"^resolutions", r"^accuracy_(.+)$", "accuracy", r"\\1"),    # a curve: x is the factor
    ]
    INSPECT_KEYS = [(r"^work/", "model/")]
    INSPECT_VALUES = [(r"^the opposite$", "opposite")]
    EXPERIMENT_KEYS = [(r"^evaluate$", "evaluations"), (r"^train\\.batch$", "train.batch_size")]

What a pattern cannot say (a tensor that is split, a result in another file) belongs in ``adapter.py``. A name that
disappears without a successor is a number that is no longer tested: delete its pattern's target only on purpose.
"""

from __future__ import annotations

import re

Patterns = list[tuple[str, str]]

SPECS: dict[str, Patterns] = {
    "encoding": [],
    "model": [],
    "data": [
        (r"\bfashion\b", "fashion_mnist"),
        (r"\bfolder\(", "image_folder("),
        (r"\+ only\(classes=", "+ classes(keep="),
        (r"\+ only\b", "+ classes"),
        (r"\+ part\b", "+ subset"),
        (r"\+ held\b", "+ holdout"),
        (r"\+ jigsaw\b", "+ permute_patches"),
        (r"^dot\b", "dot_location"),
        (r"^order\b", "patch_order"),
        (r"^sides\b", "left_right"),
        (r"per='set'", "per='dataset'"),
    ],
    "evaluation": [  # attacks too
        (r"\bedge='black'", "border='zeros'"),
        (r"\bedge=", "border="),
        (r"per='set'", "per='dataset'"),
        (r"\bfashion\b", "fashion_mnist"),
        (r"\bdefence=", "defense="),
        (r"\bnoise\(scale=", "noise(std="),
        (r"'sides\b", "'left_right"),
    ],
    "augment": [
        (r"\bprobability=", "prob="),
        (r"\bswitch=", "switch_prob="),
        (r"\bdeviation=", "magnitude_std="),
        (r"\boperations=", "num_ops="),
        (r"(jigsaw\(.*?)\bratio=", r"\1mask_ratio="),
        (r"(jigsaw\(.*?)\bper=", r"\1mask_per="),
        (r"\bjitter\b", "color_jitter"),
        (r"\bspp\b", "patch_pixel_shuffle"),
    ],
    "defence": [(r"\bnorm=", "max_norm="), (r"\bscale=", "std="), (r"\bshare=", "fraction=")],
}
MODEL_OPTIONS: Patterns = []  # pattern of the old encoding spec -> an option that its model gets today
PARAMETERS: Patterns = []  # names in state dicts
METRICS: list[tuple[str, str, str, str]] = []  # old evaluation spec, old metric -> metric, x; the first match counts
INSPECT_KEYS: Patterns = []  # paths in inspect.json, joined by "/": "table/structure/nearby/p"
INSPECT_VALUES: Patterns = []  # words in inspect.json
EXPERIMENT_KEYS: Patterns = [  # keys of an experiment's TOML, "train.batch"; training options too
    (r"^train\.batch$", "train.batch_size"),
    (r"^train\.decay$", "train.weight_decay"),
    (r"^train\.smoothing$", "train.label_smoothing"),
    (r"^train\.clip$", "train.grad_clip"),
    (r"^train\.start$", "train.lr_start"),
    (r"^train\.end$", "train.lr_end"),
    (r"^train\.warmup$", "train.warmup_fraction"),
    (r"^train\.pieces$", "train.grad_accum"),
    (r"^train\.repeats$", "train.repeated_aug"),
    (r"^train\.defence$", "train.defense"),
]


def renamed(old: str, patterns: Patterns) -> str:
    """The name of today of an old name."""
    for pattern, replacement in patterns:
        old = re.sub(pattern, replacement, old)
    return old


def spec(kind: str, old: str) -> str:
    """The spec of today of an old spec, for all kinds but models."""
    return renamed(old, SPECS[kind])


def model_spec(old: str, old_encoding: str) -> str:
    """The spec of today of an old model that is built with an old encoding."""
    new = renamed(old, SPECS["model"])
    options = [option for pattern, option in MODEL_OPTIONS if re.search(pattern, old_encoding)]
    if not options:
        return new
    name, _, rest = new.partition("(")
    return f"{name}({', '.join(filter(None, (rest.removesuffix(')'), *options)))})"


def parameter(old: str) -> str:
    """The name of today of a tensor of an old state dict."""
    return renamed(old, PARAMETERS)


def metric(old_evaluation: str, old_metric: str) -> tuple[str, str]:
    """The metric and its x of today, of a metric of an old evaluation; x is empty for a single number."""
    for evaluation, pattern, new, x in METRICS:
        if re.search(evaluation, old_evaluation) and (found := re.search(pattern, old_metric)):
            return found.expand(new), found.expand(x)
    return old_metric, ""


def inspect_key(old: str) -> str:
    """The path of today in inspect.json."""
    return renamed(old, INSPECT_KEYS)


def inspect_value(old: str) -> str:
    """The word of today in inspect.json."""
    return renamed(old, INSPECT_VALUES)


def experiment_key(old: str) -> str:
    """The key of today in an experiment's TOML."""
    return renamed(old, EXPERIMENT_KEYS)

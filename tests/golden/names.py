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
    "encoding": [
        (r"\bplugin\b", "tests.golden.adapter:Plugin"),
        (r"\bcpb\(cosine=(True|False)\)", "cpb"),
        (r"\bbetween=", "interpolation="),
        (r"\bevery_layer=", "per_layer="),
        (r"(learned\([^)]*?)\bprefix=True", r"\1prefix_embed=True"),
        (r"(learned\([^)]*?)\bdecay=", r"\1weight_decay="),
        (r"\bcls=", "prefix_bias="),
        (r"((?:fourier|cpb|coordinates)\([^)]*?)\bhidden=", r"\1hidden_dim="),
        (r"\bact=", "activation="),
        (r"\bcoordinates\b", "coordinate_mlp"),
        (r"(cpe\(.*?)\bblocks=", r"\1layers="),
        (r"\bview=", "field_of_view="),
        (r"((?:cope|sape2)\([^)]*?)\bsteps=", r"\1max_positions="),
        (r"\bdot='k'", "mode='key'"),
        (r"\bdot='q'", "mode='query'"),
        (r"\bscaled_gates=", "scale_gates="),
        (r"\bdivide=", "scale_bias="),
        (r"\baxes=", "per_axis="),
        (r"\bgated=", "gates="),
        (r"\bntk=", "ntk_factor="),
        (r"\bprefix='origin'", "prefix_mode='origin'"),
        (r"\bprefix='content'", "prefix_mode='unrotated'"),
        (r"\bprefix='place'", "prefix_mode='learned'"),
        (r"\bprefix='centre'", "prefix_mode='center'"),
        (r"\b(shift|jitter|rescale)=", r"\1_coords="),
        (r"\bblock=", "block_size="),
        (r"(mjp\(.*?)\bratio=", r"\1mask_ratio="),
        (r"\bjigsaw=", "shuffle="),
        (r"\bindex=", "slot_index="),
        (r"\bdal='nonlinear'", "localization='mlp'"),
        (r"\bdal=", "localization="),
        (r"(mjp\(.*?)(?<!_)\blayers=", r"\1localization_layers="),
        (r"(mjp\(.*?)(?<!_)\bweight=", r"\1localization_weight="),
        (r"(mjp\(.*?)\bprobability=", r"\1mask_prob="),
        (r"(mjp\(.*?)(?<!_)\bwarmup=", r"\1mask_warmup="),
        (r"(mjp\(.*?)(?<!_)\bfade=", r"\1localization_fade="),
        (r"(mjp\(.*?)(?<!_)\bper=", r"\1mask_per="),
        (r"(mjp\(.*?)\bblocks=", r"\1block_size="),
        (r"\bderange=", "derangement="),
        (r"(mjp\(.*?)(?<!_)\bstd=", r"\1init_std="),
        (r"(mjp\(.*?)(?<!_)\bdecay=", r"\1weight_decay="),
    ],
    "model": [
        (r"windows='cpb'", "windows='cpb', qk_norm='cosine'"),
        (r"\bwindows=", "window_encoding="),
        (r"^attention\b", "minimal"),
        (r"\bmlp=", "mlp_ratio="),
        (r"\binit=", "weight_init="),
        (r"\bapril=", "april_block="),
        (r"\bhidden=", "hidden_dim="),
    ],
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
        (r"^projection\b", "closed_form"),
        (r"^matching\b", "gradient_matching"),
        (r"\bsetting='b'", "scenario='find_shuffled'"),
        (r"\bsetting='c'", "scenario='find_original'"),
        (r"(^(?:closed_form|april|gradient_matching)\(.*?)\bratio=", r"\1mask_ratio="),
        (r"\btold=", "mask_known="),
        (r"\battacker='mask'", "attacker='knows_mask'"),
        (r"^pairs\b", "two_class"),
        (r"^resolutions\b", "resolution_curve"),
        (r"^translations\b", "translation_curve"),
        (r"^shifts\b", "random_shifts"),
        (r"^outliers\(against=", "ood(dataset="),
        (r"^dense\b", "segmentation"),
        (r"^tokens\b", "token_diversity"),
        (r"^shuffle\((.*?)\bratio=", r"shuffle(\1mask_ratio="),
        (r"^(shuffle\(.*?)\bpixels=", r"\1shuffle_pixels="),
        (r"^(shuffle\(.*?)\bexact=", r"\1exact_count="),
        (r"^(shuffle\(.*?)\bpositions='told'", r"\1mask_known=True"),
        (r"^(resolution\(.*?)\btables=", r"\1resize_tables="),
        (r"^(resolution\(.*?)\btune=", r"\1finetune_steps="),
        (r"\bcoordinates='fit'", "coords='interpolate'"),
        (r"\bcoordinates='beyond'", "coords='extrapolate'"),
        (r"\bcoordinates=", "coords="),
        (r"^(resolution_curve\(.*?)\blimit=", r"\1max_images="),
        (r"^(random_shifts\(.*?)\bdraws=", r"\1num_pairs="),
        (r"^(corruption\(.*?)\bkinds=", r"\1corruptions="),
        (r"\bmask_known=", "hide_masked="),
        (r"^(resolution(?:_curve)?\(.*?)\bprotocol=", r"\1resize_mode="),
        (r"^cost\(batch=", "cost(batch_size="),
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
MODEL_OPTIONS: Patterns = [
    (r"\bcpb\b(?!\(cosine=False\))", "qk_norm='cosine'")
]  # pattern of the old encoding spec -> an option that its model gets today
PARAMETERS: Patterns = [
    (r"^prefix$", "prefix_tokens"),
    (r"\bencoding\.parts\.", "encoding.encodings."),
    (r"\bfrequencies$", "mixed_frequencies"),
    (r"\bcls$", "prefix_bias"),
    (r"\bplace$", "learned_origin"),
    (r"\bindex\.table$", "slots.table"),
]  # names in state dicts
METRICS: list[tuple[str, str, str, str]] = [  # old evaluation spec, old metric -> metric, x; the first match counts
    (r"^resolutions", r"^(accuracy)_([\d.]+)$", r"\1", r"\2"),
    (r"^resolutions", r"^area$", "auc", ""),
    (r"^resolutions", r"^worst$", "min_accuracy", ""),
    (r"^translations", r"^accuracy_(\d+)$", "accuracy", r"\1"),
    (r"^translations", r"^agreement_(\d+)$", "consistency", r"\1"),
    (r"^translation\b", r"^tokens_(\d+)$", "token_error", r"\1"),
    (r"^translation\b", r"^tokens$", "token_error", ""),
    (r"^translation\b", r"^logits$", "logit_error", ""),
    (r"^(jigsaw|translation)\b", r"^agreement$", "consistency", ""),
    (r"^translation\b", r"^agreement_and_right$", "consistent_correct", ""),
    (r"^shuffle\b", r"^consistent_and_right$", "consistent_correct", ""),
    (r"^shuffle\b", r"^divergence$", "kl_divergence", ""),
    (r"^shuffle\b", r"^difference$", "feature_distance_sq", ""),
    (r"^shuffle\b", r"^difference_unsquared$", "feature_distance", ""),
    (r"^shuffle\b", r"^difference_relative$", "feature_distance_rel", ""),
    (r"^shuffle\b", r"^shuffled$", "masked_fraction", ""),
    (r"^shifts\b", r"^worst$", "worst_case_accuracy", ""),
    (r"^pairs\b", r"^all_classes$", "accuracy_all", ""),
    (r"^pairs\b", r"^two_logits$", "accuracy_pair", ""),
    (r"^corruption", r"^(error)_severity_(\d)$", r"\1", r"\2"),
    (r"^(projection|april|matching)\b", r"^psnr_grey$", "psnr_mean_image", ""),
    (r"^(projection|april|matching)\b", r"^psnr_shown$", "psnr_visible", ""),
    (r"^(projection|april|matching)\b", r"^psnr_worst$", "psnr_min", ""),
    (r"^(projection|april|matching)\b", r"^psnr_best$", "psnr_max", ""),
    (r"^(projection|april|matching)\b", r"^equations$", "rank_positions", ""),
    (r"^(projection|april|matching)\b", r"^places$", "condition_positions", ""),
    (r"^(projection|april|matching)\b", r"^guess$", "underdetermined", ""),
    (r"^(projection|april|matching)\b", r"^outside$", "exact_fraction", ""),
    (r"^(projection|april|matching)\b", r"^lost$", "lost_by_projection", ""),
    (r"^(projection|april|matching)\b", r"^closed$", "from_closed_form", ""),
    (r"^(projection|april|matching)\b", r"^label$", "label_accuracy", ""),
    (r"^(projection|april|matching)\b", r"^distance$", "gradient_distance", ""),
    (r"^outliers\b", r"^aupr_chance$", "aupr_baseline", ""),
    (r"^outliers\b", r"^calibration_error_whole$", "calibration_error_all_bins", ""),
    (r"^dense\b", r"^commonest$", "majority_accuracy", ""),
    (r"^tokens\b", r"^blank$", "blank_fraction", ""),
    (r"^cost\b", r"^multiply_adds$", "macs", ""),
    (r"^cost\b", r"^peak_megabytes$", "peak_memory_mb", ""),
    (r"^cost\b", r"^step_milliseconds$", "step_ms", ""),
    (r"^cost\b", r"^step_ratio$", "step_time_ratio", ""),
]
INSPECT_KEYS: Patterns = [
    (r"^work/", "model/"),
    (r"^why$", "reason"),
    (r"^kind$", "format"),
    (r"(?<=/)deviation\b", "std"),
    (r"(?<=/)turned\b", "antisymmetric"),
    (r"^(table/norm/)least$", r"\1min"),
    (r"^(table/norm/)most$", r"\1max"),
    (r"\bnorm_by_place\b", "norm_by_position"),
    (r"/centred/", "/centered/"),
    (r"accumulated_variance", "cumulative_variance"),
    (r"accumulated_values", "cumulative_singular_values"),
    (r"/taken$", "/subsampled"),
    (r"_fit_mae(?=_std\b|\b)", "_train_mae"),
    (r"(structure/|logits_prefer/)nearby", r"\1neighbors"),
    (r"(structure/|logits_prefer/)grid", r"\1two_dimensional"),
    (r"(structure/|logits_prefer/)rim", r"\1border"),
    (r"position_share_pictures", "position_share_unshuffled"),
    (r"head_diversity_of_images", "head_diversity_per_image"),
    (r"logits_prefer", "logit_contrasts"),
    (r"\buniform_distance", "attention_distance_uniform"),
    (r"bias_by_content/correlation", "bias_content_correlation/mean"),
    (r"bias_by_content/spread", "bias_content_correlation/std"),
]  # paths in inspect.json, joined by "/": "table/structure/nearby/p"
INSPECT_VALUES: Patterns = [
    (r"^the opposite$", "opposite"),
    (r"^centre-weighted$", "center-weighted"),
]  # words in inspect.json
EXPERIMENT_KEYS: Patterns = [  # keys of an experiment's TOML, "train.batch"; training options too
    (r"^evaluate$", "evaluations"),
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

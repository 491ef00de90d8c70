"""The registry of evaluations: functions ``(ctx, **options) -> Result`` that measure a trained model.

Attacks on shared gradients are evaluations too; ``ATTACKS`` contains only these.
"""

from vitpos.registry import Registry

ATTACKS = Registry(
    "attack",
    {
        "closed_form": "vitpos.privacy.closed_form:closed_form",
        "april": "vitpos.privacy.april:april",
        "gradient_matching": "vitpos.privacy.gradient_matching:gradient_matching",
    },
    positional=1,
    base="vitpos.evaluations.result:Result",
)
EVALUATIONS = Registry(
    "evaluation",
    {
        "accuracy": "vitpos.evaluations.accuracy:accuracy",
        "confusion": "vitpos.evaluations.accuracy:confusion",
        "two_class": "vitpos.evaluations.accuracy:two_class",
        "learning_curve": "vitpos.evaluations.learning_curve:learning_curve",
        "jigsaw": "vitpos.evaluations.patch_shuffle:jigsaw",
        "shuffle": "vitpos.evaluations.patch_shuffle:shuffle",
        "resolution": "vitpos.evaluations.resolution:resolution",
        "resolution_curve": "vitpos.evaluations.resolution:resolution_curve",
        "translation": "vitpos.evaluations.translation:translation",
        "translation_curve": "vitpos.evaluations.translation:translation_curve",
        "random_shifts": "vitpos.evaluations.translation:random_shifts",
        "corruption": "vitpos.evaluations.corruption:corruption",
        "ood": "vitpos.evaluations.ood:ood",
        "hard_images": "vitpos.evaluations.hard_images:hard_images",
        "segmentation": "vitpos.evaluations.segmentation:segmentation",
        "token_diversity": "vitpos.evaluations.token_diversity:token_diversity",
        "patch_overlap": "vitpos.evaluations.patch_overlap:patch_overlap",
        "mask_coverage": "vitpos.evaluations.mask_coverage:mask_coverage",
        "table_structure": "vitpos.evaluations.position_table:table_structure",
        "table_spectrum": "vitpos.evaluations.position_table:table_spectrum",
        "table_projection": "vitpos.evaluations.position_table:table_projection",
        "table_regression": "vitpos.evaluations.position_table:table_regression",
        "table_prefix": "vitpos.evaluations.position_table:table_prefix",
        "attention_heads": "vitpos.evaluations.attention_content:attention_heads",
        "bias_content": "vitpos.evaluations.attention_content:bias_content",
        "neighbor_attention": "vitpos.evaluations.attention_content:neighbor_attention",
        "cost": "vitpos.evaluations.cost:cost",
        "cost_curve": "vitpos.evaluations.cost_curve:cost_curve",
    },
    positional=1,
    base="vitpos.evaluations.result:Result",
    group="vitpos.evaluations",
    includes=(ATTACKS,),
)
register_evaluation = EVALUATIONS.register

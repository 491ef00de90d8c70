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
        "pairs": "vitpos.evaluations.pairs:pairs",
        "jigsaw": "vitpos.evaluations.jigsaw:jigsaw",
        "shuffle": "vitpos.evaluations.shuffle:shuffle",
        "resolution": "vitpos.evaluations.resolution:resolution",
        "resolutions": "vitpos.evaluations.resolution:resolutions",
        "translation": "vitpos.evaluations.translation:translation",
        "translations": "vitpos.evaluations.translation:translations",
        "shifts": "vitpos.evaluations.translation:shifts",
        "corruption": "vitpos.evaluations.corruption:corruption",
        "outliers": "vitpos.evaluations.outliers:outliers",
        "dense": "vitpos.evaluations.dense:dense",
        "tokens": "vitpos.evaluations.tokens:tokens",
        "cost": "vitpos.evaluations.cost:cost",
    },
    positional=1,
    base="vitpos.evaluations.result:Result",
    group="vitpos.evaluations",
    includes=(ATTACKS,),
)
register_evaluation = EVALUATIONS.register

"""What can be asked of a trained model: one function each, ``(model, data, **options) -> {metric: number}``.

A number that does not exist is NaN, and left out of what is stored.
"""

from vitpos.registry import Registry

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
    positional=2,
    group="vitpos.evaluations",
)
register_evaluation = EVALUATIONS.register

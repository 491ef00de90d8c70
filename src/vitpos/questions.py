"""What can be asked of a trained model, by one look-up: every evaluation and every attack."""

from vitpos.attacks import ATTACKS
from vitpos.catalog import Catalog
from vitpos.evaluations import EVALUATIONS

QUESTIONS = Catalog("evaluation", {**EVALUATIONS, **ATTACKS})

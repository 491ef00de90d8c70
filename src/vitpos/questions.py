"""What can be asked of a trained model, by one look-up: every evaluation and every attack."""

from vitpos.attacks import ATTACKS
from vitpos.evaluations import EVALUATIONS
from vitpos.registry import Registry

QUESTIONS = Registry("evaluation", {}, positional=2, includes=(EVALUATIONS, ATTACKS))

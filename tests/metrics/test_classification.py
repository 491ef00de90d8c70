"""Classification metrics against scikit-learn and values computed by hand."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vitpos.metrics.classification import average_precision, confusion_matrix, fpr_at_recall, roc_auc


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 6), st.booleans()), min_size=2, max_size=40))
def test_areas_and_fpr_equal_scikit_learn_also_with_ties(pairs):
    from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

    scores, positive = (torch.tensor(values) for values in zip(*pairs, strict=True))
    scores = scores.double() / 7
    if positive.all() or not positive.any():
        return
    assert average_precision(scores, positive) == pytest.approx(average_precision_score(positive, scores), abs=1e-12)
    assert roc_auc(scores, positive) == pytest.approx(roc_auc_score(positive, scores), abs=1e-12)
    fpr, recall, _ = roc_curve(positive, scores, drop_intermediate=False)
    assert fpr_at_recall(scores, positive) == pytest.approx(fpr[recall >= 0.95 - 1e-12].min())


def test_areas_of_many_random_scores_equal_scikit_learn():
    from sklearn.metrics import average_precision_score, roc_auc_score

    draw = torch.Generator().manual_seed(0)
    positive = torch.rand(5000, generator=draw) < 0.2
    scores = torch.randn(5000, generator=draw, dtype=torch.float64) + positive
    assert average_precision(scores, positive) == pytest.approx(average_precision_score(positive, scores), abs=1e-12)
    assert roc_auc(scores, positive) == pytest.approx(roc_auc_score(positive, scores), abs=1e-12)


def test_a_confusion_matrix_counts_by_class_and_predicted_class():
    labels, predicted = torch.tensor([0, 0, 2, 2, 2]), torch.tensor([0, 1, 2, 2, 0])
    assert confusion_matrix(labels, predicted, 3).tolist() == [[1, 1, 0], [0, 0, 0], [1, 0, 2]]
